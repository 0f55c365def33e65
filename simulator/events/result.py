"""What an event-level simulation tells: the step, how every stage spent it, its critical path and its memory."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.simulator.events.contention import Contention
from forerun.simulator.events.costs import StepCosts
from forerun.simulator.events.engine import Execution
from forerun.simulator.events.graph import TaskGraph
from forerun.simulator.events.kinds import (
    COPY,
    EXCHANGE,
    GATHER,
    HOST,
    OPTIMIZER,
    RECOMPUTE,
    REDUCE,
    SEND,
    STREAMS,
    TIED,
)
from forerun.simulator.events.memory import MemoryCurve, memory_curves
from forerun.simulator.score_table import TIME_PARTS
from forerun.spaces.frames import frame_of

_PART = {
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
"""Part of a step that a task counts as; passes are split by their ``ChunkCost.parts``."""
_WAITS = ("bubble", "pipeline", "data")
_TRAFFIC = (SEND, GATHER, REDUCE, TIED, COPY, EXCHANGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineTask:
    """One task of the timeline. ``stream`` is one of ``STREAMS``; ``number`` its number in the graph."""

    number: int
    kind: str
    name: str
    stage: int
    stream: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageUse:
    """How one device-stage spends the step: ``time_s`` by ``TIME_PARTS`` adds up to the step time.

    ``busy_s``: computation, host and optimizer; ``exposed_s``: communication that its computation waits for;
    ``idle_s``: waiting for other stages' computation. ``peak_bytes`` of live tensors, at ``peak_s``, when ``peak_task``
    allocated.
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
        """What the stage spends on its own passes: all but waiting for others and traffic with them."""
        return sum(value for part, value in self.time_s.items() if part not in _WAITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventResult:
    """One simulated step.

    ``stages``: every device-stage of one pipeline, all others being equal, or of all pipelines one after the other.
    ``bubble_share``: idle time of all stages over all their time. ``critical_path``: tasks, each of which started when
    the one before it ended, from the first to the last of the step; ``critical_s``: its time by kind (``TIME_PARTS``
    without bubble), which adds up to the step. ``contention``: what traffic shared, None where it shared ports only.
    """

    step_time_s: float
    stages: tuple[StageUse, ...]
    bubble_share: float
    critical_path: tuple[int, ...]
    critical_s: Mapping[str, float]
    memory: tuple[MemoryCurve, ...]
    costs: StepCosts
    graph: TaskGraph
    run: Execution
    contention: Contention | None = None

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the timeline as a picture, on white because its colours are made for that."""
        from forerun.simulator.events.svg import timeline_svg

        return f'<div style="overflow-x:auto;background:#fff;color:#222">{timeline_svg(self)}</div>'

    def to_pandas(self) -> Any:
        """Return the timeline as a ``pandas.DataFrame``, one line for each task, with the fields of ``TimelineTask``.

        Raises:
            RequestError: pandas is not installed.
        """
        return frame_of([dataclasses.asdict(task) for task in self.timeline()])

    def stage_name(self, device: int) -> str:
        """Return what a device-stage is called: with its replica where several are simulated."""
        pp = self.costs.shape.pp
        return f"stage {device}" if len(self.stages) <= pp else f"replica {device // pp} stage {device % pp}"

    @property
    def slowest(self) -> int:
        """The (first) device-stage with most work of its own."""
        work = [stage.work_s for stage in self.stages]
        return work.index(max(work))

    @property
    def time_s(self) -> Mapping[str, float]:
        """Parts of the step (``TIME_PARTS``) as the slowest stage sees them."""
        return self.stages[self.slowest].time_s

    @property
    def peak_memory_bytes(self) -> float:
        """Largest peak of live tensors of any stage."""
        return self.stages[self.fullest].peak_bytes

    @property
    def fullest(self) -> int:
        """The (first) device-stage with the largest peak."""
        peaks = [stage.peak_bytes for stage in self.stages]
        return peaks.index(max(peaks))

    def occupied_s(self) -> list[float]:
        """Seconds for which every stream is occupied, by its number."""
        graph, start_s, end_s = self.graph, self.run.start_s, self.run.end_s
        occupied = [0.0] * len(graph.ordered)
        for task, own in enumerate(graph.stream):
            for stream in graph.gangs.get(task, (own,)):
                occupied[stream] += end_s[task] - start_s[task]
        return occupied

    def timeline(self) -> Iterator[TimelineTask]:
        """Yield all tasks in the order of their numbers."""
        graph, run = self.graph, self.run
        for task, stream in enumerate(graph.stream):
            yield TimelineTask(
                number=task,
                kind=graph.kinds[graph.kind[task]],
                name=" ".join([graph.kinds[graph.kind[task]], *(str(part) for part in graph.tag[task])]),
                stage=graph.stream_device[stream],
                stream=STREAMS[stream % len(STREAMS)],
                start_s=run.start_s[task],
                end_s=run.end_s[task],
            )


def result_of(costs: StepCosts, graph: TaskGraph, run: Execution, contention: Contention | None = None) -> EventResult:
    """Return what a run of a compiled graph tells."""
    curves = memory_curves(graph, run)
    shares = _shares(costs)
    spent = _spent(costs, graph, run, shares)
    path = critical_path(graph, run)
    stages = tuple(_stage(graph, time_s, curve) for time_s, curve in zip(spent, curves, strict=True))
    idle_s = sum(stage.idle_s for stage in stages)
    return EventResult(
        step_time_s=run.makespan_s,
        stages=stages,
        bubble_share=idle_s / (len(stages) * run.makespan_s) if run.makespan_s else 0.0,
        critical_path=path,
        critical_s=_along(graph, run, path, shares),
        memory=curves,
        costs=costs,
        graph=graph,
        run=run,
        contention=contention,
    )


def critical_path(graph: TaskGraph, run: Execution) -> tuple[int, ...]:
    """Return the tasks that decide the end, first to last; of several that end last, the one added last."""
    if not len(graph):
        return ()
    task = max(range(len(graph)), key=lambda number: (run.end_s[number], number))
    path = []
    while task >= 0:
        path.append(task)
        task = run.cause[task]
    return tuple(reversed(path))


def _shares(costs: StepCosts) -> list[list[tuple[str, float]]]:
    """Return for every virtual stage which share of a pass is which part."""
    shares = []
    for chunk in costs.chunks:
        whole = sum(chunk.parts.values())
        shares.append([(part, value / whole) for part, value in chunk.parts.items() if value] if whole else [])
    return shares


def _count(
    into: dict[str, float], graph: TaskGraph, task: int, seconds: float, shares: list[list[tuple[str, float]]]
) -> None:
    """Add the seconds of a task to the parts of a step."""
    part = _PART.get(graph.kind[task])
    if part is not None:
        into[part] += seconds
        return
    chunk = graph.tag[task][1]
    for name, share in shares[chunk if isinstance(chunk, int) else 0] or [("compute", 1.0)]:
        into[name] += share * seconds


def _along(
    graph: TaskGraph, run: Execution, path: tuple[int, ...], shares: list[list[tuple[str, float]]]
) -> dict[str, float]:
    """Return the seconds of a critical path by part."""
    into = {part: 0.0 for part in TIME_PARTS if part != "bubble"}
    now = 0.0
    for task in path:
        _count(into, graph, task, run.end_s[task] - now, shares)
        now = run.end_s[task]
    return into


def _spent(
    costs: StepCosts, graph: TaskGraph, run: Execution, shares: list[list[tuple[str, float]]]
) -> list[dict[str, float]]:
    """Return how every stage's compute stream spends the step: its tasks, and what it waits for between them."""
    count = len(graph.stream_names) // len(STREAMS)
    spent = [dict.fromkeys(TIME_PARTS, 0.0) for _ in range(count)]
    until = [0.0] * count
    passes: list[dict[int, float]] = [{} for _ in range(count)]
    start_s, end_s = run.start_s, run.end_s
    # A collective is numbered by its first member, so that numbers do not follow time on the streams of the others.
    order = np.lexsort((np.array(end_s), np.array(start_s))).tolist()
    for task in order:
        gang = graph.gangs.get(task)
        for each in (graph.stream[task],) if gang is None else gang:
            if each % len(STREAMS):
                continue
            device = each // len(STREAMS)
            gap_s = start_s[task] - until[device]
            if gap_s > 0:
                _wait(spent[device], graph, run, run.cause[task], until[device], start_s[task])
            until[device] = end_s[task]
            seconds = end_s[task] - start_s[task]
            if graph.kind[task] < SEND:
                chunk = graph.tag[task][1]
                assert isinstance(chunk, int)
                passes[device][chunk] = passes[device].get(chunk, 0.0) + seconds
            else:
                spent[device][_PART[graph.kind[task]]] += seconds
    for device, own in enumerate(passes):
        for chunk, seconds in own.items():
            for name, share in shares[chunk] or [("compute", 1.0)]:
                spent[device][name] += share * seconds
        spent[device]["bubble"] += run.makespan_s - until[device]
    return spent


def _wait(into: dict[str, float], graph: TaskGraph, run: Execution, cause: int, low_s: float, high_s: float) -> None:
    """Count a wait as what ends it: traffic of replicas, a transfer from the time it is under way, else a bubble."""
    exposed_s = 0.0
    if cause >= 0 and graph.kind[cause] in _TRAFFIC:
        since_s = max(low_s, run.start_s[cause]) if graph.kind[cause] == SEND else low_s
        exposed_s = high_s - since_s
        into[_PART[graph.kind[cause]]] += exposed_s
    into["bubble"] += high_s - low_s - exposed_s


def _stage(graph: TaskGraph, time_s: dict[str, float], curve: MemoryCurve) -> StageUse:
    exposed = ("tensor", "context", "expert", "pipeline", "data")
    at = curve.peak
    return StageUse(
        time_s=time_s,
        busy_s=sum(value for part, value in time_s.items() if part != "bubble" and part not in exposed),
        exposed_s=sum(time_s[part] for part in exposed),
        idle_s=time_s["bubble"],
        peak_bytes=curve.peak_bytes,
        peak_s=float(curve.time_s[at]) if at >= 0 else 0.0,
        peak_task=graph.name(int(curve.task[at])) if at >= 0 else "",
    )
