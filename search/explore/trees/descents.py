"""Search of trees from several starts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from forerun.search.board.found import FoundTrees
from forerun.search.board.requested import TreeRow
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.scorer import OnProgress
from forerun.spaces.errors import RequestError
from forerun.spaces.units import format_seconds

LEAST = 1e-3
"""Least gain over its start of a shown tree: less is within the error of the event level."""
RANKED = ("throughput", "cost", "gpus")
"""Objectives that always improve with a shorter step on the same devices."""

From = TypeVar("From")


class TreeCounts(Protocol):
    """Counts of ``judged`` and ``simulated`` trees."""

    @property
    def judged(self) -> int: ...

    @property
    def simulated(self) -> int: ...


@dataclass(slots=True)
class Descents:
    """Search of trees from several starts; after an interrupt the trees so far are the answer."""

    kind: str
    """Name of the results in messages, like ``trees``."""
    tally: TreeCounts
    on_progress: OnProgress | None = None
    """Progress callback."""
    rows: list[TreeRow] = field(default_factory=list)
    """Rows found so far, best first."""
    done: int = 0
    total: int = 0
    """Starts; 0 until they are known."""

    def search(self, starts: Callable[[], Iterable[From]], descend: Callable[[From], TreeRow | None]) -> FoundTrees:
        """Descend from each of the ``starts``.

        Raises:
            EndedEarly: interrupted, with the rows so far.
        """
        try:
            around = list(starts())
            self.total = len(around)
            for start in around:
                self.say()
                row = descend(start)
                if row is not None:
                    self.rows.append(row)
                    self.rows.sort(key=_device_seconds)
                self.done += 1
        except KeyboardInterrupt as stop:
            remark = (
                f"interrupted after {self.kind} around {self.done} of {self.total or 'some'} starts: the best so far"
            )
            raise EndedEarly(self._found(remark), stop) from None
        return self._found()

    def say(self) -> None:
        """Report progress and the best gain."""
        if self.on_progress is not None and self.total:
            best = f"best {format_seconds(self.rows[0].row.step_time_s)}, " if self.rows else ""
            self.on_progress(f"searching {self.kind}", self.done, self.total, f"{best}{self.tally.judged:,} evaluated")

    def _found(self, *remarks: str) -> FoundTrees:
        return FoundTrees(
            rows=tuple(self.rows),
            starts=self.done,
            judged=self.tally.judged,
            simulated=self.tally.simulated,
            remarks=remarks,
        )


def check_objective(objective: str) -> None:
    """Refuse objectives that do not improve with a shorter step.

    Raises:
        RequestError: it is such an objective.
    """
    if objective not in RANKED:
        raise RequestError(
            f"trees are looked for to shorten a step, for the objectives {', '.join(RANKED)}; drop --trees, or "
            f"--objective {objective}"
        )


def _device_seconds(row: TreeRow) -> float:
    return row.row.step_time_s * row.row.gpus
