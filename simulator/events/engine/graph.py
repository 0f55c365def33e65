"""The task graph that the engine executes: tasks, their dependencies and the streams and links that they occupy.

A *stream* runs one task at a time. An ordered stream runs its tasks in the order in which they were added, like a CUDA
stream; any other stream runs the ready task with the lowest (priority, number). A task that occupies several streams (a
collective and its members) starts when it is the next task of all of them. A *transfer* moves bytes over a route of
links, which it shares with all other transfers under way.

A ``TaskGraph`` is complete before it runs: plain lists with one entry per task, so that adding and executing a task
takes about a microsecond each. A ``LiveGraph`` (``live_graph.py``) is written while it runs and forgets tasks that have
ended. Both graphs are written by the same calls.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from forerun.spaces.errors import RequestError

Tag = tuple[object, ...]


Value = TypeVar("Value")


class ByTask(Protocol[Value]):
    """A value per task: a list, or a dict where tasks are added and forgotten."""

    def __getitem__(self, task: int, /) -> Value:
        """Return the value of a task."""

    def __setitem__(self, task: int, value: Value, /) -> None:
        """Set the value of a task."""


class EventGraph:
    """Streams, links and tasks, numbered in the order of addition; ``TaskGraph`` and ``LiveGraph`` store the tasks.

    Per task: ``duration_s`` (of a transfer: its latency), ``stream`` (that shows the task, -1: none), ``kind`` (index
    into ``kinds``), ``tag`` (its name), ``successors``, ``missing`` (number of edges not yet fulfilled, promised ones
    included) and ``priority`` (lower runs first, 0 by default). ``weights``: connections on each link of a route whose
    transfers are several connections. ``routes``: further routes that transfers may take. ``owner`` and ``place``: see
    ``at``.
    """

    duration_s: ByTask[float]
    stream: ByTask[int]
    kind: ByTask[int]
    tag: ByTask[Tag]
    successors: ByTask[list[int]]
    missing: ByTask[int]

    def __init__(self, kinds: Sequence[str]) -> None:
        self.kinds = tuple(kinds)
        self.members_of: dict[int, list[int]] = {}
        self.transfers: dict[int, tuple[float, tuple[int, ...]]] = {}
        self.stream_names: list[str] = []
        self.stream_device: list[int] = []
        self.ordered: list[bool] = []
        self.last: list[int] = []
        self.slowed_by: dict[int, tuple[float, tuple[int, ...]]] = {}
        self.link_names: list[str] = []
        self.capacity_bytes_per_s: list[float] = []
        self.weights: dict[tuple[int, ...], tuple[float, ...]] = {}
        self.routes: list[tuple[int, ...]] = []
        self.owner = self.place = 0

    def at(self, owner: int, place: int) -> None:
        """Set owner (a device) and place of the next task; a complete graph numbers tasks as they are added."""
        self.owner, self.place = owner, place

    def add_stream(self, name: str, *, device: int, ordered: bool = True) -> int:
        """Return the number of a new stream of a device."""
        self.stream_names.append(name)
        self.stream_device.append(device)
        self.ordered.append(ordered)
        self.last.append(-1)
        return len(self.last) - 1

    def add_link(self, name: str, capacity_bytes_per_s: float) -> int:
        """Return the number of a new link (one direction).

        Raises:
            RequestError: it has no capacity.
        """
        if not capacity_bytes_per_s > 0:
            raise RequestError(f"the capacity of link {name} must be more than 0, but got {capacity_bytes_per_s}")
        self.link_names.append(name)
        self.capacity_bytes_per_s.append(capacity_bytes_per_s)
        return len(self.link_names) - 1

    def add(
        self,
        kind: int,
        duration_s: float,
        stream: int = -1,
        after: Iterable[int] = (),
        *,
        tag: Tag = (),
        priority: int = 0,
    ) -> int:
        """Add a task on one stream (or none: it starts when the tasks ``after`` have ended) and return its number."""
        raise NotImplementedError

    def need(self, task: int, before: int) -> None:
        """Make an existing task wait for another one."""
        raise NotImplementedError

    def hold(self, task: int, device: int, size_bytes: float, *, at_end: bool = False) -> None:
        """Let a task allocate (negative: free) memory of a device when it starts, or when it ends."""
        raise NotImplementedError

    def pending(self, task: int) -> bool:
        """Check whether a task has not ended."""
        raise NotImplementedError

    def promise(self, task: int, count: int = 1) -> None:
        """Make a task wait for future edges or members, which ``fulfil`` and ``join`` add."""
        self.missing[task] += count

    def fulfil(self, task: int, before: int) -> None:
        """Replace one promised edge by an edge from ``before``, which has not ended."""
        self.successors[before].append(task)

    def add_collective(
        self,
        kind: int,
        duration_s: float,
        streams: Sequence[int],
        after: Iterable[int] = (),
        *,
        tag: Tag = (),
        priority: int = 0,
    ) -> int:
        """Add a task that waits for ``after`` and occupies all of ``streams`` at once; return its number."""
        task = self.add(kind, duration_s, streams[0], after, tag=tag, priority=priority)
        if len(streams) > 1:
            self.join(task, streams[1:])
        return task

    def add_transfer(
        self,
        kind: int,
        size_bytes: float,
        route: Sequence[int],
        stream: int = -1,
        after: Iterable[int] = (),
        *,
        latency_s: float = 0.0,
        tag: Tag = (),
        priority: int = 0,
    ) -> int:
        """Add a transfer over all links of ``route`` that starts to send after ``latency_s``; return its number.

        Raises:
            RequestError: the route is empty or crosses a link twice.
        """
        task = self.add(kind, latency_s, stream, after, tag=tag, priority=priority)
        self.carry(task, size_bytes, route, latency_s=latency_s)
        return task

    def weigh(self, route: Sequence[int], weights: Sequence[float]) -> None:
        """Let every transfer over ``route`` represent several connections: ``weights[i]`` of them cross ``route[i]``.

        Rate and bytes of the transfer are per connection. Fairness gives every connection the same rate.

        Raises:
            RequestError: the number of weights is not the number of links, or a weight is not positive.
        """
        self._check(route)
        if len(weights) != len(route) or not all(weight > 0 for weight in weights):
            raise RequestError(f"a route of {len(route)} links needs as many weights above 0, but got {list(weights)}")
        self.weights[tuple(route)] = tuple(weights)

    def declare(self, route: Sequence[int]) -> None:
        """Declare a route that transfers may take: the sets of flows that share links must be known before a graph
        runs. A graph that is complete before it runs need not declare any.
        """
        self._check(route)
        self.routes.append(tuple(route))

    def carry(self, task: int, size_bytes: float, route: Sequence[int], *, latency_s: float = 0.0) -> None:
        """Turn an existing task of any kind into a transfer.

        Raises:
            RequestError: as for ``add_transfer``.
        """
        self._check(route)
        self.transfers[task] = (size_bytes, tuple(route))
        self.duration_s[task] = latency_s

    def share(self, task: int, route: Sequence[int]) -> None:
        """Let a task of any kind cross links that pass one second of it per second when it is alone; a collective
        crosses the links of all its members.

        Raises:
            RequestError: as for ``add_transfer``.
        """
        seconds, before = self.transfers.get(task, (self.duration_s[task], ()))
        self._check((*before, *route))
        self.transfers[task] = (seconds, tuple(sorted((*before, *route))))
        self.duration_s[task] = 0.0

    def join(self, task: int, streams: Sequence[int], after: Iterable[int] = (), *, promised: bool = False) -> None:
        """Let an existing task occupy more streams and wait for more tasks (``after``): a further member of a
        collective, possibly ``promised``.
        """
        for before in after:
            self.need(task, before)
        for stream in streams:
            if self.ordered[stream]:
                self.missing[task] += self._follow(stream, task)
        self.members_of.setdefault(task, [self.stream[task]]).extend(streams)
        self.missing[task] -= promised

    def slow(self, stream: int, factor: float, while_busy: Sequence[int]) -> None:
        """Multiply the duration of tasks of ``stream`` by ``factor`` while any stream of ``while_busy`` is busy.

        Raises:
            RequestError: the factor is below one.
        """
        if not factor >= 1:
            raise RequestError(f"a slowdown is a factor of at least 1, but got {factor}")
        if factor > 1:
            self.slowed_by[stream] = (factor, tuple(while_busy))

    def name(self, task: int) -> str:
        """Return the name of a task in errors and traces."""
        words = [self.kinds[self.kind[task]], *(str(part) for part in self.tag[task])]
        if self.stream[task] >= 0:
            words.append(f"on {self.stream_names[self.stream[task]]}")
        return " ".join(words)

    def _check(self, route: Sequence[int]) -> None:
        if not route or len(set(route)) != len(route):
            names = [self.link_names[link] for link in route]
            raise RequestError(f"a transfer crosses one or more links, each once, but got {names}")

    def _follow(self, stream: int, task: int) -> int:
        """Chain a task to the last task of an ordered stream; return the number of added edges."""
        raise NotImplementedError


class TaskGraph(EventGraph):
    """A graph that is complete before it runs; tasks are numbered from 0.

    ``holds``: allocations and frees as (task, device, whether at its end, bytes).
    """

    duration_s: "array[float]"
    stream: list[int]
    kind: list[int]
    tag: list[Tag]
    successors: list[list[int]]
    missing: list[int]

    def __init__(self, kinds: Sequence[str]) -> None:
        super().__init__(kinds)
        self.duration_s = array("d")
        self.stream, self.kind, self.tag = [], [], []
        self.successors, self.missing = [], []
        self.priority: dict[int, int] = {}
        self.holds: list[tuple[int, int, bool, float]] = []

    def __len__(self) -> int:
        return len(self.duration_s)

    def add(
        self,
        kind: int,
        duration_s: float,
        stream: int = -1,
        after: Iterable[int] = (),
        *,
        tag: Tag = (),
        priority: int = 0,
    ) -> int:
        """Add a task on one stream (or none: it starts when the tasks ``after`` have ended) and return its number."""
        task = len(self.duration_s)
        self.duration_s.append(duration_s)
        self.stream.append(stream)
        self.kind.append(kind)
        self.tag.append(tag)
        self.successors.append([])
        if priority:
            self.priority[task] = priority
        count = 0
        for before in after:
            self.successors[before].append(task)
            count += 1
        if stream >= 0 and self.ordered[stream]:
            count += self._follow(stream, task)
        self.missing.append(count)
        return task

    def need(self, task: int, before: int) -> None:
        """Make an existing task wait for another one."""
        self.successors[before].append(task)
        self.missing[task] += 1

    def hold(self, task: int, device: int, size_bytes: float, *, at_end: bool = False) -> None:
        """Let a task allocate (negative: free) memory of a device when it starts, or when it ends."""
        self.holds.append((task, device, at_end, size_bytes))

    def pending(self, task: int) -> bool:
        """Check whether a task has not ended: always true, since an incomplete graph does not run."""
        return True

    def _follow(self, stream: int, task: int) -> int:
        """Chain a task to the last task of an ordered stream; return the number of added edges."""
        before, self.last[stream] = self.last[stream], task
        if before < 0:
            return 0
        self.successors[before].append(task)
        return 1
