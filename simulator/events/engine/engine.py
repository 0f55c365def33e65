"""Executor of task graphs, event by event (order of events: ``run.py``)."""

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.events.engine.run import TRANSFER, UNUSUAL, Run
from forerun.spaces.errors import RequestError

_SHOWN = 8
"""Tasks of a cycle named in the message."""


def stuck_error(graph: TaskGraph, missing: list[int]) -> RequestError:
    """Return the error for a run that ended with ``missing`` dependencies.

    It names one cycle, or the task that never ends.
    """
    endless = next((task for task, length_s in enumerate(graph.duration_s) if not length_s < math.inf), None)
    if endless is not None:
        return RequestError(f"tasks take finite times, but {graph.name(endless)} takes {graph.duration_s[endless]} s")
    waiting = [task for task, count in enumerate(missing) if count > 0]
    circle = find_circle(graph, missing)
    names = [graph.name(task) for task in circle[:_SHOWN]]
    more = f" -> … ({len(circle) - _SHOWN} more)" if len(circle) > _SHOWN else ""
    return RequestError(
        f"a task graph must have no cycle of waiting tasks, but {len(waiting)} of {len(graph)} tasks "
        f"never start: {' -> '.join(names)}{more} -> {names[0]}; change the order of one of them on its stream"
    )


def find_circle(graph: TaskGraph, missing: list[int]) -> list[int]:
    """Return a cycle of waiting tasks: each waits for the one before it, the first (lowest) for the last."""
    before: dict[int, int] = {}
    for task, count in enumerate(missing):
        if count > 0:
            for after in graph.successors[task]:
                before.setdefault(after, task)
    place: dict[int, int] = {}
    path: list[int] = []
    task = next(after for after in before)
    while task not in place:
        place[task] = len(path)
        path.append(task)
        task = before[task]
    circle = path[place[task] :][::-1]
    lowest = circle.index(min(circle))
    return circle[lowest:] + circle[:lowest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Start and end of every task.

    ``cause``: the task whose end started this one (-1: started at once). ``makespan_s``: the last end.
    """

    start_s: "array[float]"
    end_s: "array[float]"
    cause: "array[int]"
    makespan_s: float


def execute(graph: TaskGraph) -> Execution:
    """Run all tasks of a graph, in linear time of tasks and edges where no link is shared.

    Raises:
        RequestError: tasks wait for each other in a cycle; the message names them.
    """
    run = _WholeRun(graph)
    run.start()
    run.loop()
    if run.done < len(graph):
        raise stuck_error(graph, run.missing)
    return Execution(start_s=run.start_s, end_s=run.end_s, cause=run.cause, makespan_s=max(run.end_s, default=0.0))


class _WholeRun(Run):
    """The run of a graph that is complete before it starts."""

    missing: list[int]
    start_s: "array[float]"
    end_s: "array[float]"
    cause: "array[int]"

    def __init__(self, graph: TaskGraph) -> None:
        count = len(graph)
        super().__init__(graph, count)
        self.missing = graph.missing.copy()
        self.start_s, self.end_s, self.cause = (
            array("d", [0.0]) * count,
            array("d", [0.0]) * count,
            array("q", [-1]) * count,
        )
        self.by_rank = self.rank = ranks = list(range(count))
        if graph.priority:
            priority = [0] * count
            for task, own in graph.priority.items():
                priority[task] = own
            self.by_rank, self.rank = sorted(ranks, key=priority.__getitem__), [0] * count
            for place, task in enumerate(self.by_rank):
                self.rank[task] = place
        self.sending = {
            task: (size_bytes, self.flow_group_of[route]) for task, (size_bytes, route) in graph.transfers.items()
        }
        special = bytearray(UNUSUAL * (stream >= 0 and self.unusual[stream]) for stream in graph.stream)
        for task, members in graph.members_of.items():
            if any(self.unusual[stream] for stream in members):
                special[task] = UNUSUAL
        for task in graph.transfers:
            special[task] = special[task] or TRANSFER
        alone: list[tuple[int, ...]] = [() if ordered else (stream,) for stream, ordered in enumerate(graph.ordered)]
        self.waits = {task: alone[graph.stream[task]] for task, kind in enumerate(special) if kind == UNUSUAL}
        for task, members in graph.members_of.items():
            if task in self.waits:
                self.waits[task] = tuple(stream for stream in members if not graph.ordered[stream])
        self.special = special

    def start(self, tasks: Iterable[int] = ()) -> None:
        """Start the tasks that wait for nothing."""
        super().start(task for task, count in enumerate(self.missing) if not count)
