"""What-if questions on a replayed graph, with only the affected tasks computed again.

Every lane keeps the run's order, so a task starts at the latest end of its dependencies. When durations change, tasks
are visited in topological order from the changed ones on, as long as their ends move.
"""

from collections.abc import Mapping
from heapq import heappop, heappush

from forerun.simulator.events.engine.graph import TaskGraph
from forerun.spaces.errors import RequestError


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
