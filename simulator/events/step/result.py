"""Result of an event-level simulation: the step, its parts by stage, its critical path and its memory."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.events.engine.engine import Execution
from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.events.engine.memory import MemoryCurve
from forerun.simulator.events.engine.svg import timeline_svg
from forerun.simulator.events.engine.timeline import Timeline, TimelineTask, TimelineWriter
from forerun.simulator.events.step.contention import Contention, Key
from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.events.step.tally import PART, StageUse, StepUse, Tally, shares_of, watch_again
from forerun.simulator.score_table import TIME_PARTS
from forerun.spaces.frames import frame_of

__all__ = ["EventResult", "StageUse", "TimelineTask", "critical_path", "result_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventResult(StepUse):
    """One simulated step with all its tasks.

    ``records``: start and end of every task. ``critical_path``: tasks from the first to the last of the step, each
    started by the end of the one before it; ``critical_s``: its time by kind (``TIME_PARTS`` without bubble), which
    sums to the step. ``memory``: memory of every stage over time. ``contention``: links shared by traffic, None where
    only ports are shared; ``sent_bytes``: bytes carried by every connection of its flows. ``replicas`` and
    ``disturbance``: as simulated.
    """

    critical_path: tuple[int, ...]
    critical_s: Mapping[str, float]
    memory: tuple[MemoryCurve, ...]
    records: Timeline
    contention: Contention | None = None
    sent_bytes: Mapping[Key, float] = dataclasses.field(default_factory=dict)
    replicas: int = 1
    disturbance: Disturbance | None = None
    took_s: Mapping[str, float] = dataclasses.field(default_factory=dict, compare=False)
    """Seconds of this machine by phase, where the tasks of a step were created before the run."""

    def _repr_html_(self) -> str:
        """Return the timeline as a picture for notebooks, on white because its colours are made for white."""
        return f'<div style="overflow-x:auto;background:#fff;color:#222">{timeline_svg(self)}</div>'

    def to_pandas(self) -> Any:
        """Return the timeline as a ``pandas.DataFrame``, one row per task, with the fields of ``TimelineTask``.

        Raises:
            RequestError: pandas is not installed.
        """
        return frame_of([dataclasses.asdict(task) for task in self.timeline()])

    def stage_name(self, device: int) -> str:
        """Return the name of a pipeline rank, with its replica where several are simulated."""
        pp = self.costs.shape.pp
        return f"stage {device}" if len(self.stages) <= pp else f"replica {device // pp} stage {device % pp}"

    def timeline(self) -> Iterator[TimelineTask]:
        """Yield all tasks in the order of their numbers."""
        return self.records.tasks()


def result_of(costs: StepCosts, tally: Tally) -> EventResult:
    """Return the result of a tally with a timeline."""
    assert tally.timeline is not None
    use, records = tally.use(costs), tally.timeline.seal()
    path = records.critical_path()
    return EventResult(
        step_time_s=use.step_time_s,
        stages=use.stages,
        occupied_s=use.occupied_s,
        costs=costs,
        critical_path=path,
        critical_s=_along(records, path, shares_of(costs)),
        memory=tuple(device.meter.curve() for device in tally.devices),
        records=records,
    )


def result_of_run(costs: StepCosts, graph: TaskGraph, run: Execution) -> EventResult:
    """Return the result of the run of a complete graph."""
    tally = Tally(graph, TimelineWriter())
    watch_again(tally, graph, run)
    return result_of(costs, tally)


def critical_path(graph: TaskGraph, run: Execution) -> tuple[int, ...]:
    """Return the tasks that determine the end of a complete graph's run, first to last; of several last tasks, the one
    added last.
    """
    if not len(graph):
        return ()
    task = max(range(len(graph)), key=lambda number: (run.end_s[number], number))
    path = []
    while task >= 0:
        path.append(task)
        task = run.cause[task]
    return tuple(reversed(path))


def _along(records: Timeline, path: tuple[int, ...], shares: list[list[tuple[str, float]]]) -> dict[str, float]:
    """Return the seconds of a critical path by part."""
    into = {part: 0.0 for part in TIME_PARTS if part != "bubble"}
    now_s = 0.0
    for task in path:
        end_s = float(records.end_s[task])
        part = PART.get(records.kind_of(task))
        if part is not None:
            into[part] += end_s - now_s
        else:
            chunk = records.tag_of(task)[1]
            for name, share in shares[chunk if isinstance(chunk, int) else 0] or [("compute", 1.0)]:
                into[name] += share * (end_s - now_s)
        now_s = end_s
    return into
