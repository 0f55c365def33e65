"""Tasks, what they wait for and what they occupy: the graph that the engine executes.

A *stream* runs one task at a time. An ordered stream runs its tasks in the order in which they were added, as a CUDA
stream does; another takes of those that are ready the one with the lowest (priority, number). A task that occupies
several streams (a collective and its members) starts when all of them have come to it. A *transfer* moves bytes over a
route of links, which it shares with whatever else is under way.

The graph is a structure of plain lists, one entry per task, so that adding and executing a task costs about a
microsecond each.
"""

from collections.abc import Iterable, Sequence

from forerun.spaces.errors import RequestError

Tag = tuple[object, ...]


class TaskGraph:
    """A growing graph; tasks, streams, links and devices are numbered as they are added.

    Per task: ``duration_s`` (of a transfer: its latency), ``stream`` (the one that it is shown on, -1: none), ``kind``
    (number of an entry of ``kinds``), ``tag`` (whatever names it), ``successors`` and ``missing`` (edges and their
    number). ``priority``: that of tasks which have one, lower goes first; 0 for all others. ``weights``: of a route
    whose transfers are several connections, how many of them cross each of its links.
    """

    __slots__ = (
        "capacity_bytes_per_s",
        "duration_s",
        "gangs",
        "holds",
        "kind",
        "kinds",
        "last",
        "link_names",
        "missing",
        "ordered",
        "priority",
        "slowed_by",
        "stream",
        "stream_device",
        "stream_names",
        "successors",
        "tag",
        "transfers",
        "weights",
    )

    def __init__(self, kinds: Sequence[str]) -> None:
        self.kinds = tuple(kinds)
        self.duration_s: list[float] = []
        self.stream: list[int] = []
        self.kind: list[int] = []
        self.tag: list[Tag] = []
        self.priority: dict[int, int] = {}
        self.successors: list[list[int]] = []
        self.missing: list[int] = []
        self.gangs: dict[int, tuple[int, ...]] = {}
        self.transfers: dict[int, tuple[float, tuple[int, ...]]] = {}
        self.holds: list[tuple[int, int, bool, float]] = []
        self.stream_names: list[str] = []
        self.stream_device: list[int] = []
        self.ordered: list[bool] = []
        self.last: list[int] = []
        self.slowed_by: dict[int, tuple[float, tuple[int, ...]]] = {}
        self.link_names: list[str] = []
        self.capacity_bytes_per_s: list[float] = []
        self.weights: dict[tuple[int, ...], tuple[float, ...]] = {}

    def __len__(self) -> int:
        return len(self.duration_s)

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
        """Return the number of a new task on one stream, or on none (it then starts as soon as it may)."""
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
        """Return the number of a new task that occupies all of ``streams`` at once."""
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
        """Return the number of a new task that sends bytes over all links of ``route``, ``latency_s`` after its start.

        Raises:
            RequestError: the route is empty or crosses a link twice.
        """
        task = self.add(kind, latency_s, stream, after, tag=tag, priority=priority)
        self.carry(task, size_bytes, route, latency_s=latency_s)
        return task

    def weigh(self, route: Sequence[int], weights: Sequence[float]) -> None:
        """Let every transfer over ``route`` stand for several connections: ``weights[i]`` of them cross ``route[i]``.

        Its rate and its bytes are those of one connection. Fair is what gives every connection the same.

        Raises:
            RequestError: not one weight above zero for every link.
        """
        self._check(route)
        if len(weights) != len(route) or not all(weight > 0 for weight in weights):
            raise RequestError(f"a route of {len(route)} links needs as many weights above 0, but got {list(weights)}")
        self.weights[tuple(route)] = tuple(weights)

    def carry(self, task: int, size_bytes: float, route: Sequence[int], *, latency_s: float = 0.0) -> None:
        """Turn an existing task of any kind into a transfer.

        Raises:
            RequestError: as for ``add_transfer``.
        """
        self._check(route)
        self.transfers[task] = (size_bytes, tuple(route))
        self.duration_s[task] = latency_s

    def share(self, task: int, route: Sequence[int]) -> None:
        """Let a task of any kind cross links that pass one second of it per second when it has them alone; a collective
        whose members join it crosses the links of all.

        Raises:
            RequestError: as for ``add_transfer``.
        """
        seconds, before = self.transfers.get(task, (self.duration_s[task], ()))
        self._check((*before, *route))
        self.transfers[task] = (seconds, (*before, *route))
        self.duration_s[task] = 0.0

    def join(self, task: int, streams: Sequence[int], after: Iterable[int] = ()) -> None:
        """Let an existing task occupy more streams and wait for more tasks: a further member of a collective."""
        for before in after:
            self.need(task, before)
        for stream in streams:
            if self.ordered[stream]:
                self.missing[task] += self._follow(stream, task)
        self.gangs[task] = (*self.gangs.get(task, (self.stream[task],)), *streams)

    def need(self, task: int, before: int) -> None:
        """Make an existing task wait for another one."""
        self.successors[before].append(task)
        self.missing[task] += 1

    def hold(self, task: int, device: int, size_bytes: float, *, at_end: bool = False) -> None:
        """Let a task allocate (negative: free) memory of a device when it starts, or when it ends."""
        self.holds.append((task, device, at_end, size_bytes))

    def slow(self, stream: int, factor: float, while_busy: Sequence[int]) -> None:
        """Make tasks of ``stream`` take ``factor`` times as long while any of other streams is busy.

        Raises:
            RequestError: the factor is below one.
        """
        if not factor >= 1:
            raise RequestError(f"a slowdown is a factor of at least 1, but got {factor}")
        if factor > 1:
            self.slowed_by[stream] = (factor, tuple(while_busy))

    def name(self, task: int) -> str:
        """Return what errors and traces call a task."""
        words = [self.kinds[self.kind[task]], *(str(part) for part in self.tag[task])]
        if self.stream[task] >= 0:
            words.append(f"on {self.stream_names[self.stream[task]]}")
        return " ".join(words)

    def _check(self, route: Sequence[int]) -> None:
        if not route or len(set(route)) != len(route):
            names = [self.link_names[link] for link in route]
            raise RequestError(f"a transfer crosses one or more links, each once, but got {names}")

    def _follow(self, stream: int, task: int) -> int:
        """Chain a task to the last one of an ordered stream; return how many edges that took."""
        before, self.last[stream] = self.last[stream], task
        if before < 0:
            return 0
        self.successors[before].append(task)
        return 1
