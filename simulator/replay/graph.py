"""The global data-flow graph: spans of all ranks as tasks, exchanges joined, gaps as tasks of their own.

A span waits for the one before it on its lane, for its launch, and for what its gap shows that it waited for; whatever
is then left of the gap is the host's (or the device's) own delay and stays. Members of an exchange come to it; those
that did not leave before the last had come wait for that one, and behind it each takes its own time. So a late rank
delays the others in a replay as it did in the run, and would not if it were faster.
"""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.replay.clocks import Clocks
from forerun.simulator.replay.matching import MatchedMessage, Matching
from forerun.simulator.replay.trace import Floats, Integers, RankTrace, SpanKind
from forerun.simulator.replay.waits import inferred_waits

KINDS = ("compute", "copy", "host", "collective", "send", "receive", "gap", "join")
"""Kinds of tasks; the first six are numbered as ``SpanKind``."""
GAP, JOIN = 6, 7
_STAMP_S = 5e-6
"""Seconds by which stamps of two threads may contradict each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayGraph:
    """A graph and the run that it was made from.

    ``task``: per trace, the task of every span; ``start_s``, ``end_s``: per trace, measured on the common clock, from
    the first start; ``step``: per task, -1 for joins; ``finish_s``: measured end of every step over all ranks;
    ``origin_s``: where all that begins; ``lanes``: per trace, the stream of every lane.
    """

    graph: TaskGraph
    traces: tuple[RankTrace, ...]
    matching: Matching
    clocks: Clocks
    task: tuple[Integers, ...]
    start_s: tuple[Floats, ...]
    end_s: tuple[Floats, ...]
    step: Integers
    rank: Integers
    finish_s: Floats
    origin_s: float
    lanes: tuple[tuple[int, ...], ...]


def build_graph(traces: Sequence[RankTrace], matching: Matching, clocks: Clocks) -> ReplayGraph:
    """Return the graph as measured.

    Raises:
        RequestError: spans wait for each other in a circle (found when the graph is executed).
    """
    return _Builder(traces, matching, clocks).build()


def build_graphs(
    traces: Sequence[RankTrace], matching: Matching, clocks: Clocks
) -> tuple[ReplayGraph, ReplayGraph, ReplayGraph]:
    """Return the graph as measured; with every task taking the mean of what it took in all steps; and with that times
    the pace of its rank in its step: what that rank's tasks took there over the sum of their means. They share all but
    their durations: a run of many ranks has millions of tasks.
    """
    builder = _Builder(traces, matching, clocks)
    measured = builder.build()
    averaged, paced = (replace(measured, graph=_lasting(measured.graph, seconds)) for seconds in builder.averages())
    return measured, averaged, paced


def _lasting(graph: TaskGraph, seconds: Floats) -> TaskGraph:
    """Return a graph whose tasks take other times."""
    other = copy(graph)
    other.duration_s = array("d", seconds.tobytes())
    return other


class _Builder:
    """Adds the tasks of one rank after the other, then the edges between them."""

    def __init__(self, traces: Sequence[RankTrace], matching: Matching, clocks: Clocks) -> None:
        self.traces, self.matching, self.clocks = tuple(traces), matching, clocks
        self.graph = TaskGraph(KINDS)
        starts = [clocks.aligned(place, trace.start_s) for place, trace in enumerate(traces)]
        ends = [clocks.aligned(place, trace.end_s) for place, trace in enumerate(traces)]
        self.origin_s = min(float(start.min()) for start in starts)
        self.start_s = [start - self.origin_s for start in starts]
        self.end_s = [np.maximum(end - self.origin_s, start) for end, start in zip(ends, self.start_s, strict=True)]
        self.task = [np.full(len(trace), -1, dtype=np.int64) for trace in traces]
        self.entry = [np.full(len(trace), -1, dtype=np.int64) for trace in traces]
        self.step, self.rank, self.key = array("q"), array("q"), array("q")
        self.keys: dict[tuple[int, ...], int] = {}  # of one rank
        self.counted = 0
        self.lanes: list[tuple[int, ...]] = []

    def build(self) -> ReplayGraph:
        """Add everything."""
        for place, trace in enumerate(self.traces):
            waits = self._waits(place, trace)
            self._spans(place, trace, waits)
            for span, before in waits.items():
                for other in before:
                    self.graph.need(int(self.entry[place][span]), int(self.task[place][other]))
        for one in self.matching.exchanges:
            self._join(one)
        steps = max(trace.steps for trace in self.traces)
        finish = np.zeros(steps)
        for trace, end in zip(self.traces, self.end_s, strict=True):
            np.maximum.at(finish, trace.step, end)
        return ReplayGraph(
            graph=self.graph,
            traces=self.traces,
            matching=self.matching,
            clocks=self.clocks,
            task=tuple(self.task),
            start_s=tuple(self.start_s),
            end_s=tuple(self.end_s),
            step=np.array(self.step, dtype=np.int64),
            rank=np.array(self.rank, dtype=np.int64),
            finish_s=np.maximum.accumulate(finish),
            origin_s=self.origin_s,
            lanes=tuple(self.lanes),
        )

    def _waits(self, place: int, trace: RankTrace) -> dict[int, list[int]]:
        """Find the spans that a span waits for besides its lane: by the trace itself, or by its launch and its gap."""
        if trace.after is not None:
            return {span: list(before) for span, before in enumerate(trace.after) if before}
        start_s, end_s = self.start_s[place], self.end_s[place]
        waits = inferred_waits(trace, start_s, end_s)
        for span in np.flatnonzero(trace.cause >= 0).tolist():
            cause = int(trace.cause[span])
            if end_s[cause] <= start_s[span] + _STAMP_S:
                waits.setdefault(span, []).append(cause)
        return waits

    def _spans(self, place: int, trace: RankTrace, waits: dict[int, list[int]]) -> None:
        """Add the lanes and spans of one rank, each behind its gap."""
        free = trace.after is not None
        streams = tuple(
            self.graph.add_stream(f"rank {trace.rank} {name}", device=place, ordered=not free) for name in trace.lanes
        )
        self.lanes.append(streams)
        start_s, end_s = self.start_s[place], self.end_s[place]
        timed = bool(np.ptp(start_s) > 0)
        reached: dict[int, float] = {}
        latest: dict[int, int] = {}
        counts: dict[tuple[int, int, int], int] = defaultdict(int)
        kinds, lanes, names, steps = (array.tolist() for array in (trace.kind, trace.lane, trace.name, trace.step))
        for span in range(len(trace)):
            lane, kind, step = lanes[span], kinds[span], steps[span]
            counts[step, lane, names[span]] += 1
            tag = (span,)
            key = (lane, names[span], counts[step, lane, names[span]])
            before = [float(end_s[other]) for other in waits.get(span, ())]
            ready = max(*before, reached.get(lane, 0.0), 0.0) if before else reached.get(lane, 0.0)
            gap_s = max(float(start_s[span]) - ready, 0.0) if timed else 0.0
            message = kind >= SpanKind.COLLECTIVE
            stream = streams[lane]
            begun = -1
            if gap_s > 0 or message:
                # A free stream must not stand still while a gap passes.
                begun = self._add(GAP, gap_s, -1 if free else stream, tag, key, step, trace.rank)
            task = self._add(
                kind,
                max(float(end_s[span]) - float(start_s[span]), 0.0),
                stream,
                tag,
                key,
                step,
                trace.rank,
            )
            if free and begun >= 0:
                self.graph.need(task, begun)
                if reached.get(lane, 0.0) > max(before, default=0.0):
                    self.graph.need(begun, latest[lane])  # its lane was busy until then
            latest[lane] = task
            self.task[place][span] = task
            self.entry[place][span] = begun if begun >= 0 else task
            reached[lane] = max(reached.get(lane, 0.0), float(end_s[span]))
        self.counted += len(self.keys)
        self.keys.clear()

    def _add(
        self,
        kind: int,
        seconds: float,
        stream: int,
        tag: tuple[object, ...],
        key: tuple[int, ...],
        step: int,
        rank: int,
    ) -> int:
        self.step.append(step)
        self.rank.append(rank)
        self.key.append(self.keys.setdefault((*key, int(kind == GAP)), self.counted + len(self.keys)))
        return self.graph.add(kind, seconds, stream, tag=tag)

    def _join(self, one: MatchedMessage) -> None:
        """Let members of an exchange wait for the last of them, and take from there what each took."""
        coming = [(float(self.start_s[place][span]), place, span) for place, span in one.members]
        if one.operation == "pair":
            # A receive waits for the send's start; a send for the receive's only where it did not leave before.
            last_s = max(coming[0][0], coming[1][0])
        else:
            last_s = max(moment for moment, _, _ in coming)
        waiting = [(place, span) for _, place, span in coming if float(self.end_s[place][span]) >= last_s - _STAMP_S]
        self.step.append(-1)
        self.rank.append(-1)
        self.key.append(-1)
        join = self.graph.add(
            JOIN, 0.0, after=[int(self.entry[place][span]) for _, place, span in coming], tag=(one.operation,)
        )
        for place, span in waiting:
            task = int(self.task[place][span])
            self.graph.need(task, join)
            self.graph.duration_s[task] = max(float(self.end_s[place][span]) - last_s, 0.0)

    def averages(self) -> tuple[Floats, Floats]:
        """Return for every task the mean over steps of what stands at its place on its rank and lane, and that times
        the pace of its rank in its step."""
        took_s = np.array(self.graph.duration_s)
        known = np.flatnonzero(np.array(self.key, dtype=np.int64) >= 0)
        key, own_s = np.array(self.key, dtype=np.int64)[known], took_s[known]
        mean_s = (np.bincount(key, own_s) / np.bincount(key))[key]
        places = np.stack([np.array(self.rank, dtype=np.int64)[known], np.array(self.step, dtype=np.int64)[known]])
        place = np.unique(places, axis=1, return_inverse=True)[1].reshape(-1)
        took, usual = np.bincount(place, own_s), np.bincount(place, mean_s)
        pace = np.where(usual > 0, took / np.where(usual > 0, usual, 1.0), 1.0)[place]
        averaged, paced = took_s.copy(), took_s.copy()
        averaged[known], paced[known] = mean_s, mean_s * pace
        return averaged, paced
