"""The global data-flow graph: spans of all ranks as tasks, gaps as tasks of their own, exchanges joined.

A span waits for the preceding span of its lane, for its launch, and for the cause of its gap; the rest of the gap is a
constant delay of the host (or the device). Members of an exchange enter it one by one; members that leave after the
last entry wait for that entry, and each keeps its duration after it. A late rank therefore delays the others in a
replay as in the run, and no longer does when it is faster.
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
"""Kinds of tasks; the first six have the numbers of ``SpanKind``."""
GAP, JOIN = 6, 7
_STAMP_S = 5e-6
"""Seconds by which stamps of two threads may contradict each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayGraph:
    """A graph and its source run.

    ``task``: per trace, the task of every span; ``start_s``, ``end_s``: per trace, measured on the common clock from
    the first start; ``step``: per task, -1 for joins; ``finish_s``: measured end of every step over all ranks;
    ``origin_s``: time of the first start; ``lanes``: per trace, the stream of every lane.
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
        RequestError: spans wait for each other in a cycle (detected on execution).
    """
    return _Builder(traces, matching, clocks).build()


def build_graphs(
    traces: Sequence[RankTrace], matching: Matching, clocks: Clocks
) -> tuple[ReplayGraph, ReplayGraph, ReplayGraph]:
    """Return the graph as measured, with mean durations, and with mean durations times paces.

    A mean is over all steps; the pace of a rank in a step is the duration of its tasks over the sum of their means. The
    graphs share everything except durations, since a run of many ranks has millions of tasks.
    """
    builder = _Builder(traces, matching, clocks)
    measured = builder.build()
    averaged, paced = (replace(measured, graph=_lasting(measured.graph, seconds)) for seconds in builder.averages())
    return measured, averaged, paced


def _lasting(graph: TaskGraph, seconds: Floats) -> TaskGraph:
    """Return a graph with other durations."""
    other = copy(graph)
    other.duration_s = array("d", seconds.tobytes())
    return other


class _Builder:
    """Adds the tasks of one rank after the other, followed by the edges between them."""

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
        """Return the dependencies of every span except its lane, from the trace itself, or from its launch and gap."""
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
        """Add the lanes and spans of one rank, each after its gap."""
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
                # A gap must not occupy a free stream.
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
                    self.graph.need(begun, latest[lane])  # its lane was busy until this time
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
        """Let members of an exchange wait for the last entry, and last as long after it as measured."""
        coming = [(float(self.start_s[place][span]), place, span) for place, span in one.members]
        if one.operation == "pair":
            # A receive waits for the start of the send; a send waits for the receive only where it left after its
            # start.
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
        """Return mean durations over steps, and these means times the pace of the task's rank in its step.

        A mean is over the tasks at the same place on a rank and lane.
        """
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
