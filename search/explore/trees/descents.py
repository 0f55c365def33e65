"""Search for trees from one start after the other."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from forerun.search.board.found import FoundTrees
from forerun.search.board.trees import TreeRow
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.scorer import OnProgress
from forerun.spaces.errors import RequestError
from forerun.spaces.units import format_seconds

LEAST = 1e-3
"""Gain over its start from which a tree is worth showing: less is within what the event level itself leaves out."""
RANKED = ("throughput", "cost", "gpus")
"""Objectives that a shorter step on the same devices always serves."""

From = TypeVar("From")


class TreeCounts(Protocol):
    """Counts what was looked at: ``judged`` trees, ``simulated`` of them event by event."""

    @property
    def judged(self) -> int: ...

    @property
    def simulated(self) -> int: ...


@dataclass(slots=True)
class Descents:
    """Looks for trees from one start after the other; where that is interrupted, what was found is the answer."""

    kind: str
    """Word for the results in messages: ``trees``."""
    tally: TreeCounts
    on_progress: OnProgress | None = None
    """Hears how far it is."""
    rows: list[TreeRow] = field(default_factory=list)
    """Rows so far, best first."""
    done: int = 0
    total: int = 0
    """Starts; 0 until they are known."""

    def search(self, starts: Callable[[], Iterable[From]], descend: Callable[[From], TreeRow | None]) -> FoundTrees:
        """Descend from each of the ``starts``.

        Raises:
            EndedEarly: with what was found by then.
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
        """Tell how far it is, and how good the best is."""
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
    """Refuse objectives that a shorter step does not serve.

    Raises:
        RequestError: it is one of them.
    """
    if objective not in RANKED:
        raise RequestError(
            f"trees are looked for to shorten a step, for the objectives {', '.join(RANKED)}; drop --trees, or "
            f"--objective {objective}"
        )


def _device_seconds(found: TreeRow) -> float:
    return found.row.step_time_s * found.row.gpus
