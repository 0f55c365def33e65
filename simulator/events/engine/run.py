"""State of the run of a task graph, and the handling of each event.

Simultaneous events have a fixed order, which makes runs reproducible: the heap key is (time, priority, task number). At
each instant, first all ends are handled, second free streams take the ready task with the lowest (priority, number),
third rates are set. A task of zero duration ends in the instant of its start, after the other ends. A task that becomes
ready and a stream that becomes free at the same instant therefore always find each other.
"""

import math
from collections.abc import Container, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from forerun.simulator.events.engine.flow_groups import Component, FlowGroup
from forerun.simulator.events.engine.graph import ByTask, EventGraph
from forerun.simulator.events.engine.sharing import shared_links


class Slowed:
    """A stream whose tasks slow down while others are busy.

    The stream has the task under way, its remaining seconds at full speed, and the number of busy streams that slow it.
    A task on several such streams is timed on the first of them, the ``lead`` of the others.
    """

    __slots__ = ("busy", "due_s", "lead", "left_s", "members", "rate", "since_s", "slow_rate", "task")

    def __init__(self, factor: float) -> None:
        self.slow_rate = 1 / factor
        self.task = -1
        self.lead: Slowed | None = None
        self.members: list[Slowed] = []
        self.left_s = self.since_s = self.due_s = 0.0
        self.rate = 1.0
        self.busy = 0


PLAIN, TRANSFER, UNUSUAL = range(3)
"""Types of tasks: fixed length on an ordered stream or none, transfers without a stream, and all others."""


class Run:
    """State of one execution.

    The heap has three types of event as (time, key), and the range of the key gives the type: ``end`` of a task (its
    rank), ``join`` of a transfer to its links after its latency (``joins`` plus its rank), and ``wake`` for the next
    end of a transfer in a component (``wakes`` plus the component's number). At one instant, ends precede joins and
    joins precede wakes, and events are compared by two numbers. ``begins``: tasks whose start calls ``begun``."""

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
        """Start the tasks that wait for nothing."""
        for task in tasks:
            if self.special[task] == UNUSUAL:
                self.ready.append(task)
            else:
                self._begin_plain(task, 0.0)
        self.settle(0.0)

    def begun(self, task: int, now: float) -> None:
        """Record the start of a task of ``begins``."""
        raise NotImplementedError

    def leave(self, task: int, now: float) -> tuple[list[int], Any]:
        """Record the end of a task; return its successors and the cause that they receive."""
        self.end_s[task] = now
        return self.graph.successors[task], task

    def loop(self) -> None:
        """Handle events until none is left or the run is ``paused``: all events of an instant first, their consequences
        after them.
        """
        heap, joins, wakes, by_rank, components = self.heap, self.joins, self.wakes, self.by_rank, self.components
        while heap and not self.paused:
            now, key = heappop(heap)
            # The range of the key is the type of event: ends first, since an end frees resources for joins and wakes.
            if key < joins:
                self.end(by_rank[key], now)
            elif key < wakes:
                self.join(key - joins, now)
            else:
                self.wake(components[key - wakes], now)
            # Streams and links are assigned only after all ends of an instant; otherwise the order of simultaneous ends
            # would decide which task runs.
            if heap and heap[0][0] == now:
                continue
            if self.ready or self.touched or self.unsettled:
                self.settle(now)
            if self.changed:
                self.share(now)

    def end(self, task: int, now: float) -> None:
        """End a task; its successors without other dependencies become ready."""
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
        """Let a transfer occupy its links, after its latency."""
        size_bytes, flow_group = self.sending[self.by_rank[rank]]
        flow_group.component.join(flow_group, rank, size_bytes, now)
        self._change(flow_group.component)

    def wake(self, component: Component, now: float) -> None:
        """End the next transfer of a component, unless its end has moved since this event was created."""
        # ``asked_s``: time of the heap's event for ``wake_s``, the next end. Rates change more often than members end,
        # so an event that has become too early stays in the heap and creates its successor here.
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
        """Share links again after transfers started or ended at this instant."""
        for component in self.changed:
            component.changed = False
            component.wake_s = wake_s = component.share(now)
            if wake_s < component.asked_s:
                # An end that moved to a later time is corrected when its old event is handled.
                component.asked_s = wake_s
                heappush(self.heap, (wake_s, self.wakes + component.number))
        self.changed.clear()

    def finish(self, task: int, now: float) -> bool:
        """Release the resources of a special task; return False where its end moved since this event was created."""
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
        """Report the start or end of a task to the other streams that it slows."""
        occupied = self._occupied(task, self.graph.stream[task])
        for each in occupied:
            for victim in self.causing.get(each, ()):
                if victim not in occupied:
                    self.slowed[victim].busy += change
                    self.unsettled.add(victim)

    def _timed_on(self, task: int) -> Slowed | None:
        """Return the stream whose slowdown applies to a task, None where none does or links determine its speed."""
        if task in self.sending or not self.slowed:
            return None
        stream = self.graph.stream[task]
        if stream in self.slowed:
            return self.slowed[stream]
        members = self.graph.members_of.get(task, ())
        return next((self.slowed[each] for each in members if each in self.slowed), None)

    def settle(self, now: float) -> None:
        """Start all tasks that can start, after all ends of an instant."""
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
        """Start the first task in a stream's queue if all its streams are free and have it first."""
        queue = self.queue[stream]
        if not queue or not self.free[stream]:
            return
        key = queue[0]
        task = self.by_rank[key]
        # A collective starts when it is first in the queues of all its streams. Tasks have the same order in every
        # queue, so two collectives over the same streams cannot wait for each other.
        needed = self.waits[task]
        if len(needed) == 1 or all(self.free[other] and self.queue[other][0] == key for other in needed):
            for other in needed:
                heappop(self.queue[other])
                self.free[other] = False
                # The cause is the last dependency: a stream that became free now, else the preceding task.
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
            # A slowing task that starts at this instant makes ``settle`` set the pace again.
            self._pace(slowed, now)
        else:
            heappush(self.heap, (now + duration_s, self.rank[task]))

    def _pace(self, slowed: Slowed, now: float) -> None:
        """Update the speed of the task under way from the busy streams: its slowest member decides."""
        # Remaining work is in seconds at full speed, so a change of pace moves only the end: remaining seconds / rate.
        rates = [member.slow_rate for member in slowed.members if member.busy]
        rate = min(rates) if rates else 1.0
        if slowed.task >= 0 and rate != slowed.rate:
            slowed.left_s = max(slowed.left_s - (now - slowed.since_s) * slowed.rate, 0.0)
            slowed.since_s, slowed.rate = now, rate
            slowed.due_s = now + slowed.left_s / rate
            heappush(self.heap, (slowed.due_s, self.rank[slowed.task]))
