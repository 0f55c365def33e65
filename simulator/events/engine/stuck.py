"""Error for tasks that wait for each other."""

import math

from forerun.simulator.events.engine.graph import TaskGraph
from forerun.spaces.errors import RequestError

_SHOWN = 8
"""Tasks of a cycle named in the message."""


def stuck_error(graph: TaskGraph, missing: list[int]) -> RequestError:
    """Return the error for a run that ended with ``missing`` dependencies; it names one cycle, or the task that never
    ends.
    """
    endless = next((task for task, length_s in enumerate(graph.duration_s) if not length_s < math.inf), None)
    if endless is not None:
        return RequestError(f"tasks take finite times, but {graph.name(endless)} takes {graph.duration_s[endless]} s")
    waiting = [task for task, count in enumerate(missing) if count > 0]
    circle = find_circle(graph, missing)
    names = [graph.name(task) for task in circle[:_SHOWN]]
    more = f" -> … ({len(circle) - _SHOWN} more)" if len(circle) > _SHOWN else ""
    return RequestError(
        f"a task graph must have no circle of tasks that wait for each other, but {len(waiting)} of {len(graph)} tasks "
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
