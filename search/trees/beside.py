"""Trees beside the rows of a board: looking for them from one start after the other, and their ranks there."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.trees import TreeRow, TreeRows
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.scorer import Told
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
    """What is looked for, as users are told: ``trees``."""
    tally: TreeCounts
    told: Told | None = None
    """Hears how far it is."""
    rows: list[TreeRow] = field(default_factory=list)
    """What was found, best first."""
    done: int = 0
    total: int = 0
    """Starts; 0 until they are known."""

    def beside(
        self, board: Leaderboard, starts: Callable[[], Iterable[From]], descend: Callable[[From], TreeRow | None]
    ) -> Leaderboard:
        """Return a board with what ``descend`` finds from each of the ``starts``.

        Raises:
            EndedEarly: with the board and what was found by then.
        """
        try:
            around = list(starts())
            self.total = len(around)
            for start in around:
                self.say()
                found = descend(start)
                if found is not None:
                    self.rows.append(found)
                    self.rows.sort(key=_device_seconds)
                self.done += 1
        except KeyboardInterrupt as stop:
            remark = (
                f"interrupted after {self.kind} around {self.done} of {self.total or 'some'} starts: the best so far"
            )
            early = dataclasses.replace(board, remarks=(*board.remarks, remark))
            raise EndedEarly(self._with(early), stop) from None
        return self._with(board)

    def say(self) -> None:
        """Tell how far it is, and how good the best is."""
        if self.told is not None and self.total:
            best = f"best {format_seconds(self.rows[0].row.step_time_s)}, " if self.rows else ""
            self.told(f"searching {self.kind}", self.done, self.total, f"{best}{self.tally.judged:,} evaluated")

    def _with(self, board: Leaderboard) -> Leaderboard:
        found = TreeRows(
            rows=tuple(self.rows),
            starts=self.done,
            judged=self.tally.judged,
            simulated=self.tally.simulated,
            gain=0.0,
        )
        return trees_beside(board, found)


def trees_beside(board: Leaderboard, found: TreeRows) -> Leaderboard:
    """Return a board with trees that were found, ranked among its rows, beside those that it has already."""
    known = TreeRows(rows=(), starts=0, judged=0, simulated=0, gain=0.0) if board.trees is None else board.trees
    rows = sorted((*known.rows, *found.rows), key=_device_seconds)
    joined = TreeRows(
        rows=tuple(_ranked(board, row) for row in rows),
        starts=known.starts + found.starts,
        judged=known.judged + found.judged,
        simulated=known.simulated + found.simulated,
        gain=max((_gain(board, row) for row in rows), default=0.0),
    )
    return dataclasses.replace(board, trees=joined)


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


def _ranked(board: Leaderboard, found: TreeRow) -> TreeRow:
    """Return a row with its place among the flat rows of the board."""
    place = 1 + sum(row.step_time_s * row.gpus < _device_seconds(found) for row in board.rows)
    return replace(found, row=replace(found.row, rank=place))


def _gain(board: Leaderboard, found: TreeRow) -> float:
    """Return how much faster a tree is than the best flat row of as many devices."""
    steps = [row.step_time_s for row in board.rows if row.gpus == found.row.gpus]
    return min(steps, default=math.inf) / found.row.step_time_s - 1
