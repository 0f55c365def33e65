"""When every task of a step ran: a record of 40 bytes each, which pictures, traces and the critical path are made of.

Records come in the order in which tasks end. A sealed timeline has them in the order in which a graph that is written
device by device numbers its tasks: nothing in it tells whether the graph was whole when it ran.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.events.graph import Tag
from forerun.simulator.events.kinds import KINDS, STREAMS


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineTask:
    """One task of the timeline. ``stream`` is one of ``STREAMS``; ``number`` its number in the graph."""

    number: int
    kind: str
    name: str
    stage: int
    stream: str
    start_s: float
    end_s: float


class TimelineWriter:
    """Columns that grow by a record for every task that ends; ``arrows``: (transfer, what it lets start) by number."""

    def __init__(self) -> None:
        self._start_s, self._end_s = array("d"), array("d")
        self._number, self._cause = array("q"), array("i")
        self._streams, self._microbatch, self._label = array("i"), array("i"), array("i")
        self._labels: dict[tuple[int, bool, Tag], int] = {}
        self._gangs: dict[tuple[int, ...], int] = {}
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
        """Add a record; return its place, by which later ones name it as their ``cause`` (-1: none)."""
        self._number.append(number)
        self._start_s.append(start_s)
        self._end_s.append(end_s)
        self._cause.append(cause)
        own = streams[0] if len(streams) == 1 else -1 - self._gangs.setdefault(tuple(sorted(streams)), len(self._gangs))
        self._streams.append(own)
        counted = bool(tag) and isinstance(tag[0], int)
        self._microbatch.append(tag[0] if counted else 0)  # type: ignore[arg-type]  # counted says that it is one
        label = (kind, counted, tag[1:] if counted else tag)
        self._label.append(self._labels.setdefault(label, len(self._labels)))
        return len(self._number) - 1

    def seal(self) -> "Timeline":
        """Return the records in the order of their numbers."""
        number = np.frombuffer(self._number, dtype=np.int64)
        order = np.argsort(number, kind="stable").astype(np.int32)
        place = np.empty(len(order) + 1, dtype=np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        place[-1] = -1
        columns = (self._start_s, self._end_s, self._streams, self._microbatch, self._label)
        start_s, end_s, streams, microbatch, label = (np.asarray(column)[order] for column in columns)
        return Timeline(
            start_s=start_s,
            end_s=end_s,
            cause=place[np.asarray(self._cause)[order]] if len(order) else place[:0],
            arrows=np.searchsorted(number[order], np.asarray(self.arrows)).astype(np.int32).reshape(-1, 2),
            streams=streams,
            microbatch=microbatch,
            label=label,
            labels=tuple(self._labels),
            gangs=tuple(self._gangs),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Records of all tasks by number. ``cause``: the task whose end let one start (-1: it started at once);
    ``arrows``: transfers and what they let start. ``streams``: that of a task, or less than 0 and a gang: -1 is the
    first of ``gangs``. ``labels``: kind and what follows the microbatch in a tag (or the whole tag)."""

    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    cause: NDArray[np.int32]
    arrows: NDArray[np.int32]
    streams: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    label: NDArray[np.int32]
    labels: tuple[tuple[int, bool, Tag], ...]
    gangs: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.start_s)

    def streams_of(self, task: int) -> tuple[int, ...]:
        """Return the streams that a task occupies."""
        own = int(self.streams[task])
        return (own,) if own >= 0 else self.gangs[-1 - own]

    def kind_of(self, task: int) -> int:
        """Return what a task does, a number of ``KINDS``."""
        return self.labels[int(self.label[task])][0]

    def kinds(self) -> Iterator[int]:
        """Yield what every task does."""
        for label in self.label:
            yield self.labels[label][0]

    def found(self) -> set[int]:
        """Return what tasks do at all."""
        return {kind for kind, _, _ in self.labels}

    def tag_of(self, task: int) -> Tag:
        """Return what names a task among those of its kind."""
        _, counted, rest = self.labels[self.label[task]]
        return (int(self.microbatch[task]), *rest) if counted else rest

    def name_of(self, task: int) -> str:
        """Return kind and tag in words."""
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
        """Return the tasks that decide the end, first to last; of several that end last, the one with the highest
        number."""
        if not len(self):
            return ()
        task = len(self) - 1 - int(np.argmax(self.end_s[::-1]))
        path = []
        while task >= 0:
            path.append(task)
            task = int(self.cause[task])
        return tuple(reversed(path))
