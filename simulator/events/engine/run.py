"""The run of a task graph: what is under way, who waits, and what follows from each event.

Order of simultaneous events, which makes every run the same: the heap key is (time, priority, number of the task).
First all ends of an instant are handled; then streams that became free take the ready task with the lowest (priority,
number); then rates are set. A task of no duration that starts ends in the same instant, behind those. So a task that
becomes ready at an instant competes for a stream that becomes free at that instant, whichever of the two comes first.
"""

import math
from collections.abc import Container, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from forerun.simulator.events.engine.flow_groups import Component, FlowGroup
from forerun.simulator.events.engine.graph import ByTask, EventGraph
from forerun.simulator.events.engine.sharing import shared_links
from forerun.simulator.events.engine.slowed import Slowed

PLAIN, TRANSFER, UNUSUAL = range(3)
"""Tasks of a fixed length on an ordered stream or on none, transfers that wait for no stream, and all others."""


class Run:
    """State of one execution.

    Three types of event stand in the heap as (time, key), and the range of the key is the type: ``end`` of a task (its
    rank), ``join`` of a transfer to its links behind its latency (``joins`` plus its rank), and ``wake`` for the next
    end of a transfer in a component (``wakes`` plus the number of the component). So ends come before joins of the same
    instant and these before wakes, and comparing two events compares two numbers. ``begins``: tasks whose start is told
    to ``begun``."""

    rank: ByTask[int]
    by_rank: ByTask[int]
    missing: ByTask[int]
    start_s: ByTask[float]
    end_s: ByTask[float]
    cause: ByTask[Any]
    special: ByTask[int]
    begins: Container[int] = ()
    paused = False

    def __init__(self, graph: EventGraph, count: int) -> None:
        self.graph = graph
        self.joins, self.wakes = count, 2 * count
        self.heap: list[tuple[float, int]] = []
        self.done = 0
        self.flow_group_of, self.components = shared_links(graph)
        self.sending: dict[int, tuple[float, FlowGroup]] = {}
        self.free = [True] * len(graph.ordered)
        self.freed_by: list[Any] = [-1] * len(graph.ordered)
        self.freed_s = [-1.0] * len(graph.ordered)
        self.queue: list[list[int]] = [[] for _ in graph.ordered]
        self.slowed = {stream: Slowed(factor) for stream, (factor, _) in graph.slowed_by.items()}
        self.causing: dict[int, list[int]] = {}
        for stream, (_, causes) in graph.slowed_by.items():
            for cause in causes:
                self.causing.setdefault(cause, []).append(stream)
        self.unusual = [
            not ordered or stream in self.slowed or stream in self.causing
            for stream, ordered in enumerate(graph.ordered)
        ]
        self.waits: dict[int, tuple[int, ...]] = {}
        self.ready: list[int] = []
        self.touched: set[int] = set()
        self.unsettled: set[int] = set()
        self.changed: list[Component] = []

    def start(self, tasks: Iterable[int]) -> None:
        """Start what waits for nothing."""
        for task in tasks:
            if self.special[task] == UNUSUAL:
                self.ready.append(task)
            else:
                self._begin_plain(task, 0.0)
        self.settle(0.0)

    def begun(self, task: int, now: float) -> None:
        """Note that one of ``begins`` starts."""
        raise NotImplementedError

    def leave(self, task: int, now: float) -> tuple[list[int], Any]:
        """Note that a task ends; return its successors and what they are told to be their cause."""
        self.end_s[task] = now
        return self.graph.successors[task], task

    def loop(self) -> None:
        """Take one event after the other until there are none left, or the run is ``paused``: all of an instant, then
        what follows from them."""
        heap, joins, wakes, by_rank, components = self.heap, self.joins, self.wakes, self.by_rank, self.components
        while heap and not self.paused:
            now, key = heappop(heap)
            # The range of the key is the type of event: ends first, since what ends frees what others join or wake for.
            if key < joins:
                self.end(by_rank[key], now)
            elif key < wakes:
                self.join(key - joins, now)
            else:
                self.wake(components[key - wakes], now)
            # Streams and links are given away only when all that an instant frees is known: else the order of ends that
            # are simultaneous would decide who runs.
            if heap and heap[0][0] == now:
                continue
            if self.ready or self.touched or self.unsettled:
                self.settle(now)
            if self.changed:
                self.share(now)

    def end(self, task: int, now: float) -> None:
        """A task ends: what waited for nothing else becomes ready."""
        special, missing = self.special, self.missing
        if special[task] == UNUSUAL and not self.finish(task, now):
            return
        self.done += 1
        followers, past = self.leave(task, now)
        for after in followers:
            missing[after] = left = missing[after] - 1
            if not left:
                self.cause[after] = past
                if special[after] == UNUSUAL:
                    self.ready.append(after)
                else:
                    self._begin_plain(after, now)

    def _begin_plain(self, task: int, now: float) -> None:
        """Start a task that waits for no stream."""
        self.start_s[task] = now
        if task in self.begins:
            self.begun(task, now)
        due_s = now + self.graph.duration_s[task]
        heappush(self.heap, (due_s, self.rank[task] + self.joins * self.special[task]))

    def join(self, rank: int, now: float) -> None:
        """A transfer joins its links, behind its latency."""
        size_bytes, flow_group = self.sending[self.by_rank[rank]]
        flow_group.component.join(flow_group, rank, size_bytes, now)
        self._change(flow_group.component)

    def wake(self, component: Component, now: float) -> None:
        """The next transfer of a component ends, unless its end has moved since this event was made."""
        # ``asked_s``: when the heap has an event for ``wake_s``, the next end. Rates change more often than members
        # end, so an event that has become too early stays in the heap and asks again here.
        if component.asked_s == now:
            component.asked_s = math.inf
        if component.wake_s == now:
            component.wake_s = math.inf
            for rank in component.leave(now):
                self.end(self.by_rank[rank], now)
            self._change(component)
        elif component.wake_s < component.asked_s:
            component.asked_s = component.wake_s
            heappush(self.heap, (component.wake_s, self.wakes + component.number))

    def _change(self, component: Component) -> None:
        if not component.changed:
            component.changed = True
            self.changed.append(component)

    def share(self, now: float) -> None:
        """Share links anew where transfers came or went at this instant."""
        for component in self.changed:
            component.changed = False
            component.wake_s = wake_s = component.share(now)
            if wake_s < component.asked_s:
                # An end that moved further off is left to be found out when its old time comes.
                component.asked_s = wake_s
                heappush(self.heap, (wake_s, self.wakes + component.number))
        self.changed.clear()

    def finish(self, task: int, now: float) -> bool:
        """Release what a special task occupies; False where its end has been moved since this event was made."""
        slowed = self._timed_on(task)
        if slowed is not None:
            if slowed.task != task or slowed.due_s != now:
                return False
            slowed.task = -1
            for member in slowed.members:
                member.lead = None
        for each in self.waits[task]:
            self.free[each] = True
            self.freed_by[each], self.freed_s[each] = task, now
            self.touched.add(each)
        if self.causing:
            self._count_busy(task, -1)
        return True

    def _count_busy(self, task: int, change: int) -> None:
        """Tell the streams that a task slows, which are not its own, that it began or ended."""
        occupied = self._occupied(task, self.graph.stream[task])
        for each in occupied:
            for victim in self.causing.get(each, ()):
                if victim not in occupied:
                    self.slowed[victim].busy += change
                    self.unsettled.add(victim)

    def _timed_on(self, task: int) -> Slowed | None:
        """Return the stream that a task is slowed on, None where nothing slows it or links decide its speed."""
        if task in self.sending or not self.slowed:
            return None
        stream = self.graph.stream[task]
        if stream in self.slowed:
            return self.slowed[stream]
        members = self.graph.members_of.get(task, ())
        return next((self.slowed[each] for each in members if each in self.slowed), None)

    def settle(self, now: float) -> None:
        """Start what can start, once all ends of an instant are known."""
        for task in self.ready:
            waits = self.waits[task]
            if not waits:
                self._begin(task, now)
            for stream in waits:
                heappush(self.queue[stream], self.rank[task])
                self.touched.add(stream)
        self.ready.clear()
        if self.touched:
            for stream in sorted(self.touched):
                self._take(stream, now)
            self.touched.clear()
        if self.unsettled:
            for stream in sorted(self.unsettled):
                lead = self.slowed[stream].lead
                if lead is not None:
                    self._pace(lead, now)
            self.unsettled.clear()

    def _occupied(self, task: int, stream: int) -> Sequence[int]:
        members = self.graph.members_of.get(task)
        if members is not None:
            return members
        return (stream,) if stream >= 0 else ()

    def _take(self, stream: int, now: float) -> None:
        """Start the first task in a stream's queue if all streams that it needs are free and have come to it."""
        queue = self.queue[stream]
        if not queue or not self.free[stream]:
            return
        key = queue[0]
        task = self.by_rank[key]
        # A collective starts when it heads the queues of all its streams. Tasks stand in the same order in every queue,
        # so two that need the same streams cannot wait for each other.
        needed = self.waits[task]
        if len(needed) == 1 or all(self.free[other] and self.queue[other][0] == key for other in needed):
            for other in needed:
                heappop(self.queue[other])
                self.free[other] = False
                # The cause is what it waited for last: a stream that became free now, else the task before it.
                if self.freed_s[other] == now:
                    self.cause[task] = self.freed_by[other]
            self._begin(task, now)

    def _begin(self, task: int, now: float) -> None:
        """Start a special task."""
        graph = self.graph
        self.start_s[task] = now
        if task in self.begins:
            self.begun(task, now)
        if self.causing:
            self._count_busy(task, 1)
        duration_s = graph.duration_s[task]
        slowed = self._timed_on(task)
        if task in self.sending:
            heappush(self.heap, (now + duration_s, self.joins + self.rank[task]))
        elif slowed is not None:
            streams = [stream for stream in self._occupied(task, graph.stream[task]) if stream in self.slowed]
            slowed.task, slowed.left_s, slowed.since_s, slowed.rate = task, duration_s, now, 0.0
            slowed.members = [self.slowed[stream] for stream in streams]
            for member in slowed.members:
                member.lead = slowed
            # What else begins at this instant and slows it makes ``settle`` pace it again.
            self._pace(slowed, now)
        else:
            heappush(self.heap, (now + duration_s, self.rank[task]))

    def _pace(self, slowed: Slowed, now: float) -> None:
        """Bring the speed of what is under way up to date with who is busy: its slowest member decides."""
        # Work left is kept in seconds at full speed, so a change of pace moves only the end: left / rate.
        rates = [member.slow_rate for member in slowed.members if member.busy]
        rate = min(rates) if rates else 1.0
        if slowed.task >= 0 and rate != slowed.rate:
            slowed.left_s = max(slowed.left_s - (now - slowed.since_s) * slowed.rate, 0.0)
            slowed.since_s, slowed.rate = now, rate
            slowed.due_s = now + slowed.left_s / rate
            heappush(self.heap, (slowed.due_s, self.rank[slowed.task]))
