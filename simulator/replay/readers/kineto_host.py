"""Threads of a host as lanes of their outermost operators, divided at launches and waits."""

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from forerun.simulator.replay.readers.kineto_events import Columns, Sort
from forerun.simulator.replay.readers.kineto_messages import dtype_bytes, elements
from forerun.simulator.replay.readers.spans import Spans
from forerun.simulator.replay.trace import LATE, LEAST_S, Floats, Integers, SpanKind, SpanPhase

_ALIGNED_US = 1e-6
"""Microseconds by which a nested event may exceed the enclosing one: times are rounded."""
_CUTTING = (Sort.LAUNCH, Sort.ISSUE, Sort.SYNC)


@dataclass(slots=True)
class HostLanes:
    """Adds threads to ``spans``; event numbers index ``columns``.

    ``start``, ``end``, ``sort``, ``lane``: arrays over all events. ``optimizer``: intervals of optimizer steps;
    ``ends``: of messages, ascending; ``begins``: of messages by recording thread, ascending. Fills ``piece_of``
    (launching event -> preceding span), ``of_correlation`` (number of a launch -> its event) and ``ready`` (gradients:
    moment, bytes).
    """

    columns: Columns
    spans: Spans
    start: Floats
    end: Floats
    sort: Integers
    lane: Integers
    kind: SpanKind
    optimizer: Floats
    begins: dict[int, list[float]]
    ends: list[float]
    piece_of: dict[int, int] = field(default_factory=dict)
    of_correlation: dict[int, int] = field(default_factory=dict)
    ready: list[tuple[float, float]] = field(default_factory=list)

    def add(self, events: Integers) -> None:
        """Add one thread with its ``events``."""
        order = events[np.lexsort((-self.end[events], self.start[events]))]
        start, end, sort = self.start[order], self.end[order], self.sort[order]
        reached = np.maximum.accumulate(end)
        outer = np.flatnonzero(np.concatenate([[True], start[1:] >= reached[:-1] - _ALIGNED_US]))
        self._gradients(order)
        cuts = np.flatnonzero(np.isin(sort, _CUTTING))
        holder = np.searchsorted(outer, cuts, side="right") - 1
        cut = np.zeros(len(outer), dtype=bool)
        cut[holder] = True
        phase = self._phases(order[outer], start[outer], sort[outer])
        name = np.frombuffer(self.columns.name, dtype=np.int32)[order[outer]].astype(np.int64)
        variant = np.frombuffer(self.columns.variant, dtype=np.int32)[order[outer]].astype(np.int64)
        lane = int(self.lane[order[0]])
        plain = ~cut
        self.spans.extend(
            start[outer][plain], end[outer][plain], lane, name[plain], self.kind, phase[plain], variant[plain]
        )
        # Pieces of an operator are not compared with each other: shapes belong to the entire operator.
        unknown = self.columns.variants.setdefault("", len(self.columns.variants))
        first = np.searchsorted(holder, np.arange(len(outer) + 1))
        for place in np.flatnonzero(cut).tolist():
            arguments = (lane, int(name[place]), int(self.kind), int(phase[place]), unknown)
            inside = order[cuts[first[place] : first[place + 1]]].tolist()
            self._pieces(float(start[outer[place]]), float(end[outer[place]]), inside, arguments, start)

    def _pieces(
        self, low: float, high: float, cuts: list[int], arguments: tuple[int, int, int, int, int], starts: Floats
    ) -> None:
        """Add an operator in pieces: one before each launch, none during a wait."""
        synced = False
        for cut in cuts:
            begin, end = float(self.start[cut]), float(self.end[cut])
            self.piece_of[cut] = self.spans.add(low, max(begin, low), *arguments, synced=synced)
            if self.columns.correlation[cut] >= 0:
                self.of_correlation[self.columns.correlation[cut]] = cut
            synced = int(self.sort[cut]) == Sort.SYNC
            low = max(min(end, high) if synced else begin, low)
            if self.blocked(cut):
                low = max(end, low)
            elif int(self.sort[cut]) == Sort.ISSUE:
                following = int(np.searchsorted(starts, end, side="right"))
                waited = self._waited(end, min(float(starts[following]), high) if following < len(starts) else high)
                if self.kind == SpanKind.COMPUTE:
                    # The call is separate: where its thread waits for its message afterwards, it belongs to that wait.
                    name = self.columns.name[cut]
                    self.spans.add(low, max(end, low), arguments[0], name, int(SpanKind.HOST), *arguments[3:])
                    low = max(waited, low)
                elif waited > end:
                    self.spans.add(low, end, *arguments)
                    low = waited
        self.spans.add(low, high, *arguments, synced=synced)

    def blocked(self, event: int) -> bool:
        """Check whether a call that requests a message waits before it records the message's start.

        The message took place within the call (gloo's sends and receives, while the other side is missing).
        """
        begins = self.begins.get(int(self.lane[event]), ()) if int(self.sort[event]) == Sort.ISSUE else ()
        following = bisect_right(begins, float(self.start[event]) + LEAST_S * 1e6)
        return following < len(begins) and begins[following] <= self.end[event]

    def _waited(self, low: float, high: float) -> float:
        """Return the end of the message that ended a thread's pause from ``low`` to ``high``; ``low`` without one."""
        # The pause identifies a call that requests a message and returns at its end (``dist.all_reduce`` within an
        # operator).
        if high - low < LEAST_S * 1e6:
            return low
        last = bisect_right(self.ends, high) - 1
        if last >= 0 and self.ends[last] > low:
            return self.ends[last]
        # The host may record the end of a message late, just after the wait.
        late = last + 1 < len(self.ends) and self.ends[last + 1] - high < LATE * (high - low)
        return high if late else low

    def _phases(self, events: Integers, start: Floats, sort: Integers) -> Integers:
        """Return the phase of the step of each outermost event, by its name or the optimizer's marks."""
        # A call between operators belongs to the phase in which it is made.
        backward = np.array(
            [
                name.startswith("autograd::engine") or "Backward" in name or "AccumulateGrad" in name
                for name in self.columns.names
            ]
        )
        phase = np.where(
            backward[np.frombuffer(self.columns.name, dtype=np.int32)[events]],
            int(SpanPhase.BACKWARD),
            int(SpanPhase.FORWARD),
        )
        if len(self.optimizer):
            place = np.searchsorted(self.optimizer[:, 0], start + 1e-3, side="right") - 1
            within = (place >= 0) & (start <= self.optimizer[np.maximum(place, 0), 1])
            phase = np.where(within & (phase == SpanPhase.FORWARD), int(SpanPhase.OPTIMIZER), phase)
        operator = np.maximum.accumulate(np.where(sort == Sort.OPERATOR, np.arange(len(events)), 0))
        phases: Integers = phase[operator].astype(np.int64)
        return phases

    def _gradients(self, events: Integers) -> None:
        """Record the times of ready gradients, with their sizes where shapes were recorded."""
        number = self.columns.names.get("torch::autograd::AccumulateGrad", -1)
        names = np.frombuffer(self.columns.name, dtype=np.int32)[events]
        for event in events[names == number].tolist():
            arguments = self.columns.arguments.get(event, {})
            count, width = elements(arguments.get("Input Dims")), dtype_bytes(arguments.get("Input type"))
            if count and width:
                self.ready.append((float(self.end[event]), count * width))
