"""Start and end of every task of a step, 40 bytes each: the source of pictures, traces and the critical path.

Records are added in the order in which tasks end. A sealed timeline has the order of task numbers of a graph that is
written device by device, whether or not the graph was complete when it ran.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.events.engine.graph import Tag
from forerun.simulator.events.engine.kinds import KINDS, STREAMS

_COLUMNS = (
    ("number", "q"),
    ("start", "d"),
    ("end", "d"),
    ("cause", "i"),
    ("streams", "i"),
    ("microbatch", "i"),
    ("label", "i"),
)
_AT_ONCE = 512
"""Records moved into columns at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineTask:
    """One task of the timeline. ``stream``: one of ``STREAMS``; ``number``: its number in the graph."""

    number: int
    kind: str
    name: str
    stage: int
    stream: str
    start_s: float
    end_s: float


class TimelineWriter:
    """Columns that grow by a record for every ended task; ``arrows``: (transfer, task that it starts) by number."""

    def __init__(self) -> None:
        self._columns: dict[str, array[Any]] = {name: array(kind) for name, kind in _COLUMNS}
        self._rows: list[tuple[object, ...]] = []
        self._count = 0
        self._labels: dict[tuple[int, bool, Tag], int] = {}
        self._members_of: dict[tuple[int, ...], int] = {}
        self.arrows = array("q")

    def add(
        self,
        number: int,
        kind: int,
        tag: Tag,
        streams: Sequence[int],
        start_s: float,
        end_s: float,
        cause: int,
    ) -> int:
        """Add a record; return its index, by which later records name it as their ``cause`` (-1: none)."""
        own = (
            streams[0]
            if len(streams) == 1
            else -1 - self._members_of.setdefault(tuple(sorted(streams)), len(self._members_of))
        )
        counted = bool(tag) and isinstance(tag[0], int)
        label = (kind, counted, tag[1:] if counted else tag)
        place = self._labels.setdefault(label, len(self._labels))
        self._rows.append((number, start_s, end_s, cause, own, tag[0] if counted else 0, place))
        if len(self._rows) == _AT_ONCE:
            self._flush()
        self._count += 1
        return self._count - 1

    def _flush(self) -> None:
        """Move the latest records into the columns."""
        for column, values in zip(self._columns.values(), zip(*self._rows, strict=True), strict=False):
            column.extend(values)
        self._rows.clear()

    def seal(self) -> "Timeline":
        """Return the records in the order of their numbers."""
        self._flush()
        number = np.asarray(self._columns.pop("number"))
        order = np.argsort(number, kind="stable").astype(np.int32)
        place = np.empty(len(order) + 1, dtype=np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        place[-1] = -1
        arrows = np.searchsorted(number, np.asarray(self.arrows), sorter=order).astype(np.int32)
        del number

        def in_order(name: str) -> NDArray[Any]:
            """Return a column in the order of numbers; the unordered column is dropped."""
            column: NDArray[Any] = np.asarray(self._columns.pop(name))[order]
            return column

        return Timeline(
            start_s=in_order("start"),
            end_s=in_order("end"),
            cause=place[in_order("cause")],
            arrows=arrows.reshape(-1, 2),
            streams=in_order("streams"),
            microbatch=in_order("microbatch"),
            label=in_order("label"),
            labels=tuple(self._labels),
            members_of=tuple(self._members_of),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Records of all tasks by number.

    ``cause``: the task whose end started this one (-1: started at once); ``arrows``: transfers and the tasks that they
    start. ``streams``: stream of a task, or a negative number for a collective: -1 is the first of ``members_of``.
    ``labels``: kind, and the rest of the tag after the microbatch (or the entire tag).
    """

    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    cause: NDArray[np.int32]
    arrows: NDArray[np.int32]
    streams: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    label: NDArray[np.int32]
    labels: tuple[tuple[int, bool, Tag], ...]
    members_of: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.start_s)

    def streams_of(self, task: int) -> tuple[int, ...]:
        """Return the streams that a task occupies."""
        stream = int(self.streams[task])
        return (stream,) if stream >= 0 else self.members_of[-1 - stream]

    def kind_of(self, task: int) -> int:
        """Return the kind of a task, a number of ``KINDS``."""
        return self.labels[int(self.label[task])][0]

    def kinds(self) -> Iterator[int]:
        """Yield the kind of every task."""
        for label in self.label:
            yield self.labels[label][0]

    def found(self) -> set[int]:
        """Return the kinds that occur."""
        return {kind for kind, _, _ in self.labels}

    def tag_of(self, task: int) -> Tag:
        """Return the tag of a task, its name among the tasks of its kind."""
        _, counted, rest = self.labels[self.label[task]]
        return (int(self.microbatch[task]), *rest) if counted else rest

    def name_of(self, task: int) -> str:
        """Return kind and tag as text."""
        return " ".join([KINDS[self.kind_of(task)], *(str(part) for part in self.tag_of(task))])

    def tasks(self) -> Iterator[TimelineTask]:
        """Yield all tasks in the order of their numbers."""
        for task in range(len(self)):
            stream = self.streams_of(task)[0]
            yield TimelineTask(
                number=task,
                kind=KINDS[self.kind_of(task)],
                name=self.name_of(task),
                stage=stream // len(STREAMS),
                stream=STREAMS[stream % len(STREAMS)],
                start_s=float(self.start_s[task]),
                end_s=float(self.end_s[task]),
            )

    def critical_path(self) -> tuple[int, ...]:
        """Return the tasks that determine the end, first to last; of several last tasks, the one with the highest
        number.
        """
        if not len(self):
            return ()
        task = len(self) - 1 - int(np.argmax(self.end_s[::-1]))
        path = []
        while task >= 0:
            path.append(task)
            task = int(self.cause[task])
        return tuple(reversed(path))
