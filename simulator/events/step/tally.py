"""Use of a step by every pipeline rank, counted while it runs; ended tasks are not stored.

A complete graph that has already run is counted by the same code, with its tasks in the order of time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.events.engine.engine import Execution
from forerun.simulator.events.engine.graph import EventGraph, Tag, TaskGraph
from forerun.simulator.events.engine.kinds import (
    COPY,
    EXCHANGE,
    GATHER,
    HOST,
    KINDS,
    OPTIMIZER,
    RECOMPUTE,
    REDUCE,
    SEND,
    STREAMS,
    TIED,
)
from forerun.simulator.events.engine.live_graph import Hold, place_of
from forerun.simulator.events.engine.memory import MemoryMeter, Named
from forerun.simulator.events.engine.timeline import TimelineWriter
from forerun.simulator.score_table import TIME_PARTS

PART = {
    SEND: "pipeline",
    GATHER: "data",
    REDUCE: "data",
    TIED: "data",
    OPTIMIZER: "optimizer",
    HOST: "host",
    COPY: "host",
    RECOMPUTE: "recompute",
    EXCHANGE: "tensor",
}
"""Part of a step to which a task counts; passes are divided by their ``ChunkCost.parts``."""
_WAITS = ("bubble", "pipeline", "data")
_TRAFFIC = (SEND, GATHER, REDUCE, TIED, COPY, EXCHANGE)
_EXPOSED = ("tensor", "context", "expert", "pipeline", "data")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageUse:
    """Use of a step by one pipeline rank; ``time_s`` by ``TIME_PARTS`` sums to the step time.

    ``busy_s``: computation, host and optimizer; ``exposed_s``: communication that its computation waits for;
    ``idle_s``: wait for other stages' computation. ``peak_bytes``: peak of live tensors, at ``peak_s``, allocated by
    ``peak_task``.
    """

    time_s: Mapping[str, float]
    busy_s: float
    exposed_s: float
    idle_s: float
    peak_bytes: float
    peak_s: float
    peak_task: str

    @property
    def work_s(self) -> float:
        """Seconds of the stage's own work: the step without waits for other stages and traffic with them."""
        return sum(value for part, value in self.time_s.items() if part not in _WAITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUse:
    """Use of a step.

    ``stages``: pipeline ranks of one pipeline where all are equal, otherwise of all pipelines in order; ``occupied_s``:
    occupation of every stream by its number.
    """

    step_time_s: float
    stages: tuple[StageUse, ...]
    occupied_s: tuple[float, ...]
    costs: StepCosts

    @property
    def bubble_share(self) -> float:
        """Idle time of all stages over the total time of all stages."""
        idle_s = sum(stage.idle_s for stage in self.stages)
        return idle_s / (len(self.stages) * self.step_time_s) if self.step_time_s else 0.0

    @property
    def slowest(self) -> int:
        """The (first) pipeline rank with the most own work."""
        work = [stage.work_s for stage in self.stages]
        return work.index(max(work))

    @property
    def time_s(self) -> Mapping[str, float]:
        """Parts of the step (``TIME_PARTS``) at the slowest stage."""
        return self.stages[self.slowest].time_s

    @property
    def peak_memory_bytes(self) -> float:
        """Largest peak of live tensors of any stage."""
        return self.stages[self.fullest].peak_bytes

    @property
    def fullest(self) -> int:
        """The (first) pipeline rank with the largest peak."""
        peaks = [stage.peak_bytes for stage in self.stages]
        return peaks.index(max(peaks))


Past = tuple[int, float, int]
"""Record of a task that starts another one: its kind, the time from which nothing hid it, and its index. The time is
the start of a transfer between stages; for other traffic, the end of the passes on its own devices. The index is -1
without a timeline."""


class _Device:
    """Counts of one pipeline rank.

    ``until_s``: end of the last task on its compute stream; ``passes_s``: seconds of passes by virtual stage.
    """

    __slots__ = ("meter", "passes_s", "spent_s", "until_s")

    def __init__(self, *, curve: bool) -> None:
        self.until_s = 0.0
        self.spent_s = dict.fromkeys(TIME_PARTS, 0.0)
        self.passes_s: dict[int, float] = {}
        self.meter = MemoryMeter(curve=curve)


class Tally:
    """Watcher of a run; with a ``timeline`` it also writes the timeline and records memory over time."""

    def __init__(self, graph: EventGraph, timeline: TimelineWriter | None = None) -> None:
        self.graph = graph
        self.timeline = timeline
        self.makespan_s = 0.0
        self.occupied_s = [0.0] * len(graph.ordered)
        count = max(graph.stream_device, default=-1) + 1
        self.devices = [_Device(curve=timeline is not None) for _ in range(count)]

    def held(self, task: int, hold: Hold, now_s: float) -> None:
        """Record the allocation or free of a task."""
        graph = self.graph
        named: Named = (graph.kind[task], graph.tag[task], graph.stream[task])
        self.devices[hold.device].meter.change(now_s, hold.order, hold.size_bytes, named)

    def ended(self, task: int, start_s: float, end_s: float, cause: Past | None) -> Past:
        """Record start, end and cause of a task, in the order of time."""
        graph, occupied_s = self.graph, self.occupied_s
        kind, stream, tag = graph.kind[task], graph.stream[task], graph.tag[task]
        streams: Sequence[int] = graph.members_of.get(task) or (stream,)
        self.makespan_s = end_s
        bare_s = start_s
        if kind in _TRAFFIC and kind != SEND:
            bare_s = max(self.devices[each // len(STREAMS)].until_s for each in streams)
        for each in streams:
            occupied_s[each] += end_s - start_s
            if each % len(STREAMS) == 0:
                self._compute(self.devices[each // len(STREAMS)], kind, tag, start_s, end_s, cause)
        if self.timeline is None:
            return kind, bare_s, -1
        before = -1 if cause is None else cause[2]
        return kind, bare_s, self.timeline.add(place_of(task), kind, tag, streams, start_s, end_s, before)

    def _compute(self, device: _Device, kind: int, tag: Tag, start_s: float, end_s: float, cause: Past | None) -> None:
        """Count a task of a compute stream, and the wait before it."""
        if start_s > device.until_s:
            self._wait(device.spent_s, cause, device.until_s, start_s)
        device.until_s = end_s
        if kind < SEND:
            chunk = tag[1]
            assert isinstance(chunk, int)
            device.passes_s[chunk] = device.passes_s.get(chunk, 0.0) + (end_s - start_s)
        else:
            device.spent_s[PART[kind]] += end_s - start_s

    def _wait(self, into: dict[str, float], cause: Past | None, low_s: float, high_s: float) -> None:
        """Count a wait by its cause: as traffic from the time when nothing hides the traffic, otherwise as bubble."""
        exposed_s = 0.0
        if cause is not None and cause[0] in _TRAFFIC:
            kind, since_s, _ = cause
            exposed_s = max(high_s - max(low_s, since_s), 0.0)
            into[PART[kind]] += exposed_s
        into["bubble"] += high_s - low_s - exposed_s

    def use(self, costs: StepCosts) -> StepUse:
        """Return the use of the step, after all tasks have ended."""
        shares = shares_of(costs)
        stages = tuple(self._stage(device, shares) for device in self.devices)
        return StepUse(step_time_s=self.makespan_s, stages=stages, occupied_s=tuple(self.occupied_s), costs=costs)

    def _stage(self, device: _Device, shares: Sequence[Sequence[tuple[str, float]]]) -> StageUse:
        time_s, meter = device.spent_s.copy(), device.meter
        meter.settle()
        for chunk, seconds in device.passes_s.items():
            for name, share in shares[chunk] or [("compute", 1.0)]:
                time_s[name] += share * seconds
        time_s["bubble"] += self.makespan_s - device.until_s
        return StageUse(
            time_s=time_s,
            busy_s=sum(value for part, value in time_s.items() if part != "bubble" and part not in _EXPOSED),
            exposed_s=sum(time_s[part] for part in _EXPOSED),
            idle_s=time_s["bubble"],
            peak_bytes=meter.peak_bytes if meter.peak_task else 0.0,
            peak_s=meter.peak_s,
            peak_task=self._name(*meter.peak_task) if meter.peak_task else "",
        )

    def _name(self, kind: int, tag: Tag, stream: int) -> str:
        return " ".join([KINDS[kind], *map(str, tag), f"on {self.graph.stream_names[stream]}"])


def shares_of(costs: StepCosts) -> list[list[tuple[str, float]]]:
    """Return the parts of a pass and their shares, for every virtual stage."""
    shares = []
    for chunk in costs.chunks:
        total = sum(chunk.parts.values())
        shares.append([(part, value / total) for part, value in chunk.parts.items() if value] if total else [])
    return shares


def watch_again(tally: Tally, graph: TaskGraph, run: Execution) -> None:
    """Let a tally watch a finished run of a complete graph, in the order of time."""
    start_s, end_s = np.array(run.start_s), np.array(run.end_s)
    place = np.empty(len(graph), dtype=np.int64)
    order = np.lexsort((start_s, end_s))
    place[order] = np.arange(len(order))
    pasts: dict[int, Past] = {}
    for task in order.tolist():
        before = run.cause[task]
        cause = None if before < 0 else pasts.get(before)
        if before >= 0 and cause is None:  # both have zero duration, and the cause has the larger number
            cause = graph.kind[before], run.start_s[before], int(place[before])
        pasts[task] = tally.ended(task, run.start_s[task], run.end_s[task], cause)
    holds = [
        ((run.end_s if at_end else run.start_s)[task], task, Hold(device, order, size))
        for order, (task, device, at_end, size) in enumerate(graph.holds)
    ]
    for now_s, task, hold in sorted(holds):
        tally.held(task, hold, now_s)
