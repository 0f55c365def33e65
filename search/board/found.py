"""The result of a search before its leaderboard is built: rows, counts and remarks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forerun.search.board.leaderboard import SpaceCounts
from forerun.search.board.requested import TreeRow
from forerun.search.board.rows import Row


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Rows compared with the best one.

    ``fastest`` by predicted time alone, ``safest`` among rows with a small OOM risk. None: no such row, or unknown.
    ``unscored``: an unscored candidate may be a better safe row.
    """

    fastest: Row | None = None
    safest: Row | None = None
    unscored: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of a search.

    Attributes
    ----------
    rows
        Best first.
    space
        Counted candidates.
    remarks
        Notes on the search.
    open_axes
        Searched choices beyond the axes of the space.
    request
        Options of the search missing in its request, as plain data.
    workers
        Description of the workers.
    alternatives
        Rows that notes compare with the first row.
    families
        The best row of every family of splits of an operator graph.
    closest
        Without rows, the legal candidate with the smallest excess of memory.
    flat_space
        Candidates of the flat space that was searched first; None if it is ``space`` itself.
    """

    rows: tuple[Row[Any], ...]
    space: SpaceCounts
    remarks: tuple[str, ...] = ()
    open_axes: tuple[str, ...] = ()
    request: Mapping[str, Any] = field(default_factory=dict)
    workers: str = "in this process"
    alternatives: Alternatives = field(default_factory=Alternatives)
    families: tuple[Row[Any], ...] = ()
    closest: Row[Any] | None = None
    flat_space: SpaceCounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTrees:
    """Result of a search of strategy trees faster than flat rows.

    Counts are as in ``TreeRows``, ``remarks`` as in ``Found``.
    """

    rows: tuple[TreeRow, ...]
    starts: int
    judged: int
    simulated: int
    remarks: tuple[str, ...] = ()
