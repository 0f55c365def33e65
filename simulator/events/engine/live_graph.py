"""A task graph that is written while it runs: tasks are added shortly before they can start and forgotten at their end.

Memory grows with the number of live tasks, not with all tasks of the run. Three rules make the run equal to a run of
the complete graph:

- A task's number is (priority, owner, place): the device that adds it and the count of tasks that the device added
  before. Numbers therefore have the order of a graph that is written device by device.
- A task that waits for an unwritten task gets a *promise* of the edge.
- Ended tasks are no longer waited for. A writer must stay so far ahead that no task could have started before it was
  written, which the executor checks (``live_run.py``).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forerun.simulator.events.engine.graph import EventGraph, Tag

_PLACE_BITS, _OWNER_BITS = 36, 20
MOST_OWNERS = 1 << _OWNER_BITS
_PRIORITY_BITS = 3
MOST_NUMBERS = 1 << (_PLACE_BITS + _OWNER_BITS + _PRIORITY_BITS)
_UNRANKED = (1 << (_PLACE_BITS + _OWNER_BITS)) - 1


def place_of(number: int) -> int:
    """Return (owner, place) of a task as one number, which has the order of a complete graph."""
    return number & _UNRANKED


class Hold(NamedTuple):
    """Memory that a task allocates (negative: frees): device, number of the device's earlier holds, bytes."""

    device: int
    order: int
    size_bytes: float


class LiveGraph(EventGraph):
    """The live tasks of a graph.

    ``fresh``: (task, streams) of all tasks added to streams since the executor's last look; ``begins`` and ``ends``:
    memory that tasks allocate and free at their start and end.
    """

    duration_s: dict[int, float]
    stream: dict[int, int]
    kind: dict[int, int]
    tag: dict[int, Tag]
    successors: dict[int, list[int]]
    missing: dict[int, int]

    def __init__(self, kinds: Sequence[str]) -> None:
        super().__init__(kinds)
        self.duration_s, self.stream, self.kind, self.tag = {}, {}, {}, {}
        self.successors, self.missing = {}, {}
        self.fresh: list[tuple[int, Sequence[int]]] = []
        self.begins: dict[int, list[Hold]] = {}
        self.ends: dict[int, list[Hold]] = {}
        self._held: dict[int, int] = {}

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
        """Add a task on one stream or none, at the next place of its owner; return its number."""
        task = (priority << _OWNER_BITS | self.owner) << _PLACE_BITS | self.place
        self.place += 1
        self.duration_s[task] = duration_s
        self.stream[task] = stream
        self.kind[task] = kind
        self.tag[task] = tag
        self.successors[task] = []
        successors, count = self.successors, 0
        for before in after:
            if before in successors:
                successors[before].append(task)
                count += 1
        if stream >= 0 and self.ordered[stream]:
            count += self._follow(stream, task)
        self.missing[task] = count
        self.fresh.append((task, (stream,)))
        return task

    def need(self, task: int, before: int) -> None:
        """Make an existing task wait for another one, unless that one has ended."""
        if before in self.successors:
            self.successors[before].append(task)
            self.missing[task] += 1

    def join(self, task: int, streams: Sequence[int], after: Iterable[int] = (), *, promised: bool = False) -> None:
        """Let an existing task occupy more streams and wait for more tasks."""
        super().join(task, streams, after, promised=promised)
        self.fresh.append((task, streams))

    def hold(self, task: int, device: int, size_bytes: float, *, at_end: bool = False) -> None:
        """Let a task allocate (negative: free) memory of a device when it starts, or when it ends."""
        order = self._held[device] = self._held.get(device, 0) + 1
        (self.ends if at_end else self.begins).setdefault(task, []).append(Hold(device, order, size_bytes))

    def pending(self, task: int) -> bool:
        """Whether a task has not ended."""
        return task in self.missing

    def forget(self, task: int) -> list[int]:
        """Drop a task that ends; return its successors."""
        del self.duration_s[task], self.stream[task], self.kind[task], self.tag[task], self.missing[task]
        self.members_of.pop(task, None)
        self.transfers.pop(task, None)
        return self.successors.pop(task)

    def _follow(self, stream: int, task: int) -> int:
        """Chain a task to the last task of an ordered stream; return the number of added edges."""
        before, self.last[stream] = self.last[stream], task
        if before not in self.successors:
            return 0
        self.successors[before].append(task)
        return 1
