"""Run of a graph that is written while it runs; a watcher receives every task before it is forgotten."""

from typing import Any, Protocol

from forerun.simulator.events.engine.live_graph import MOST_NUMBERS, Hold, LiveGraph
from forerun.simulator.events.engine.run import TRANSFER, UNUSUAL, Run

_SAME_NUMBERS = range(MOST_NUMBERS)
"""Numbers of a live graph start with their priority, so they are their own ranks."""


class TaskWriter(Protocol):
    """Writes a graph."""

    graph: LiveGraph
    paused: bool
    """Whether the run must pause before the next event."""

    def open(self) -> None:
        """Write the first tasks."""

    def advance(self, task: int) -> None:
        """Write the tasks that can start soon, now that ``task`` ends; it is still in the graph."""


class Watcher(Protocol):
    """Receiver of the run's events in order of time."""

    def held(self, task: int, hold: Hold, now_s: float) -> None:
        """Record the allocation or free of a task."""

    def ended(self, task: int, start_s: float, end_s: float, cause: Any) -> Any:
        """Record start, end and cause of a task; return the value that names this task as a later cause."""


def run_live(source: TaskWriter, watcher: Watcher) -> bool:
    """Run all tasks that a source writes; return whether all of them ended (otherwise they wait for each other).

    The order of simultaneous events, and so all times, equal ``engine.execute``.

    Raises:
        RuntimeError: the source wrote a task after its possible start (an error in the source).
    """
    run = LiveRun(source, watcher)
    run.loop()
    return not source.graph.missing


class _Special(dict[int, int]):
    """Properties of live tasks that are not plain; ``finish`` ignores the late event of a slowed, ended task."""

    def __missing__(self, task: int) -> int:
        return UNUSUAL


class LiveRun(Run):
    """A started run of a graph that is written while it runs."""

    special: dict[int, int]
    start_s: dict[int, float]
    cause: dict[int, Any]
    graph: LiveGraph

    def __init__(self, source: TaskWriter, watcher: Watcher) -> None:
        source.open()
        super().__init__(source.graph, MOST_NUMBERS)
        self.source, self.watcher = source, watcher
        self.rank = self.by_rank = _SAME_NUMBERS  # type: ignore[assignment]  # a range is never written to
        self.missing, self.begins = source.graph.missing, source.graph.begins
        self.special = _Special()
        self.start_s, self.end_s, self.cause = {}, {}, {}
        self.start(self.enter())
        self.paused = source.paused

    def enter(self) -> list[int]:
        """Take over newly written tasks; return the tasks that wait for nothing."""
        graph, ready = self.graph, []
        for task, streams in graph.fresh:
            unusual = False
            for stream in streams:
                if stream >= 0 and self.unusual[stream]:
                    unusual = True
                    waits = self.waits.get(task, ())
                    self.waits[task] = waits if graph.ordered[stream] else (*waits, stream)
            kind = UNUSUAL if unusual else self.special.get(task, 0)
            if task in graph.transfers:
                kind = kind or TRANSFER
                size_bytes, route = graph.transfers[task]
                if route in self.flow_group_of:  # otherwise members of a collective are still missing
                    self.sending[task] = size_bytes, self.flow_group_of[route]
            self.special[task] = kind
            if not graph.missing[task]:
                ready.append(task)
        graph.fresh.clear()
        return ready

    def finish(self, task: int, now: float) -> bool:
        """Release the resources of a special task; return False where it has ended already or will end later."""
        return task in self.special and super().finish(task, now)

    def begun(self, task: int, now: float) -> None:
        """Record the allocations of a task that starts."""
        for hold in self.graph.begins.pop(task):
            self.watcher.held(task, hold, now)

    def leave(self, task: int, now: float) -> tuple[list[int], Any]:
        """Let the source write on, report a task's end to the watcher, and forget the task."""
        graph, ends = self.graph, self.graph.ends
        self.source.advance(task)
        self.paused = self.source.paused
        if graph.fresh and self.enter():
            raise RuntimeError(f"a task was written after it could have started, when {graph.name(task)} ended")
        past = self.watcher.ended(task, self.start_s.pop(task), now, self.cause.pop(task, None))
        if task in ends:
            for hold in ends.pop(task):
                self.watcher.held(task, hold, now)
        kind = self.special.pop(task)
        if kind == UNUSUAL:
            for stream in self.waits.pop(task):
                self.freed_by[stream] = past
        if kind:
            self.sending.pop(task, None)
        return graph.forget(task), past
