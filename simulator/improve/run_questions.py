"""What-if questions about a replayed run: faster links or kernels, no stragglers, no host waits, free messages.

Only the affected tasks are computed again. Every lane keeps the run's order, so a task starts at the latest end of its
dependencies. When durations change, tasks are visited in topological order from the changed ones on, as long as their
ends move.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.replay.analysis import Analysis
from forerun.simulator.replay.graph import GAP
from forerun.simulator.replay.trace import MESSAGES, Place, SpanKind
from forerun.spaces.errors import RequestError

_KERNELS = 5
"""Number of operators on the critical path with a question each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """``step_s``: mean seconds of a step with the change; ``gain_s``: its saving; ``visited``: tasks computed again."""

    name: str
    what: str
    step_s: float
    gain_s: float
    visited: int


FREE_MESSAGES = "free messages"


def free_messages_s(answers: Iterable[Question]) -> float | None:
    """Return the seconds of a replayed step with free messages; None where the question was not answered."""
    return next((one.step_s for one in answers if one.name == FREE_MESSAGES), None)


def run_questions(analysis: Analysis) -> tuple[Question, ...]:
    """Return all questions with their answers, most gain first.

    Raises:
        RequestError: the traces have dependencies but no order of execution.
    """
    return tuple(sorted(answered(analysis, _changes(analysis)), key=lambda one: (-one.gain_s, one.name, one.what)))


def answered(analysis: Analysis, changes: Iterable[tuple[str, str, Mapping[int, float]]]) -> Iterator[Question]:
    """Yield the answer to each change, given by name, description and new durations of tasks.

    Raises:
        RequestError: the traces have dependencies but no order of execution.
    """
    timing, steps = GraphTimes(analysis.replay.graph.graph), len(analysis.replay.measured_s)
    for name, what, durations in changes:
        makespan_s = timing.what_if(durations)
        gain_s = (timing.makespan_s - makespan_s) / steps
        yield Question(name=name, what=what, step_s=makespan_s / steps, gain_s=gain_s, visited=timing.visited)


def _changes(analysis: Analysis) -> list[tuple[str, str, dict[int, float]]]:
    """Return (name, description, durations of tasks) of every question."""
    graph = analysis.replay.graph
    took = graph.graph.duration_s
    messages: list[int] = []
    for place, trace in enumerate(graph.traces):
        messages += graph.task[place][np.isin(trace.kind, MESSAGES)].tolist()
    changes: list[tuple[str, str, dict[int, float]]] = [
        ("faster link", "twice the bandwidth", {task: took[task] / 2 for task in messages}),
        (FREE_MESSAGES, "all that communication costs", dict.fromkeys(messages, 0.0)),
        ("host", "no time between operators", dict.fromkeys(_host_gaps(analysis), 0.0)),
    ]
    names = list(dict.fromkeys(part.name for part in analysis.path if part.kind in ("compute", "copy")))
    for name in names[:_KERNELS]:
        tasks: list[int] = []
        for place, trace in enumerate(graph.traces):
            number = trace.names.index(name) if name in trace.names else -1
            tasks += graph.task[place][(trace.name == number) & (trace.kind <= SpanKind.COPY)].tolist()
        changes.append(("faster kernel", f"{name[:60]} twice as fast", {task: took[task] / 2 for task in tasks}))
    work = {use.rank: use.compute_s for use in analysis.uses}
    for one in analysis.stragglers:
        place = next(place for place, trace in enumerate(graph.traces) if trace.rank == one.rank)
        trace = graph.traces[place]
        affected = graph.task[place][(trace.kind <= SpanKind.COPY) & (trace.step >= one.since_step)].tolist()
        factor = max(1 - one.excess_s / work[one.rank], 0.0) if work[one.rank] else 1.0
        changes.append(
            ("no straggler", f"rank {one.rank} as fast as the others", {task: took[task] * factor for task in affected})
        )
    return [change for change in changes if change[2]]


def _host_gaps(analysis: Analysis) -> list[int]:
    """Return the gaps on lanes of hosts, except those before the first operator of a lane."""
    graph = analysis.replay.graph
    hosts: set[int] = set()
    for place, trace in enumerate(graph.traces):
        hosts |= {lane for lane, spot in zip(graph.lanes[place], trace.places, strict=True) if spot == Place.HOST}
    seen: set[int] = set()
    gaps = []
    for task, kind in enumerate(graph.graph.kind):
        stream = graph.graph.stream[task]
        if kind == GAP and stream in hosts and stream in seen:
            gaps.append(task)
        seen.add(stream)
    return gaps


class GraphTimes:
    """Ends of all tasks of a graph with ordered streams, and their values under changes.

    ``makespan_s``: the last end. ``visited``: tasks computed again for the last question.

    Raises:
        RequestError: tasks wait for each other in a cycle, share links or unordered streams, or slow each other.
    """

    def __init__(self, graph: TaskGraph) -> None:
        if not all(graph.ordered) or graph.transfers or graph.slowed_by or graph.members_of:
            raise RequestError(
                "partial replay needs lanes with an order and no shared links; execute the graph instead"
            )
        count = len(graph)
        self.graph = graph
        self.before: list[list[int]] = [[] for _ in range(count)]
        for task, successors in enumerate(graph.successors):
            for after in successors:
                self.before[after].append(task)
        self.place = [0] * count
        self.end_s = [0.0] * count
        missing = [len(before) for before in self.before]
        ready = [task for task in range(count) if not missing[task]]
        for place, task in enumerate(ready):
            self.place[task] = place
            self.end_s[task] = max((self.end_s[one] for one in self.before[task]), default=0.0) + graph.duration_s[task]
            for after in graph.successors[task]:
                missing[after] -= 1
                if not missing[after]:
                    ready.append(after)
        if len(ready) < count:
            raise RequestError("tasks of the replayed graph wait for each other in a circle; align the clocks")
        self.order = ready
        self.sinks = [task for task in range(count) if not graph.successors[task]]
        self.makespan_s = max((self.end_s[task] for task in self.sinks), default=0.0)
        self.visited = 0

    def what_if(self, durations_s: Mapping[int, float]) -> float:
        """Return the last end with other durations of some tasks, without changing the stored times."""
        graph, end_s, place = self.graph, self.end_s, self.place
        fresh: dict[int, float] = {}
        heap = [place[task] for task, seconds in durations_s.items() if seconds != graph.duration_s[task]]
        heap.sort()
        queued = set(heap)
        self.visited = 0
        while heap:
            number = heappop(heap)
            queued.discard(number)
            task = self.order[number]
            self.visited += 1
            start = 0.0
            for one in self.before[task]:
                end = fresh.get(one, end_s[one])
                if end > start:
                    start = end
            end = start + durations_s.get(task, graph.duration_s[task])
            if abs(end - end_s[task]) <= 1e-12:
                continue
            fresh[task] = end
            for after in graph.successors[task]:
                if place[after] not in queued:
                    queued.add(place[after])
                    heappush(heap, place[after])
        return max((fresh.get(task, end_s[task]) for task in self.sinks), default=0.0)
