"""The result of a search before it is a leaderboard: rows, counts and what the search says of itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forerun.search.board.leaderboard import SpaceCounts
from forerun.search.board.rows import Row
from forerun.search.board.trees import TreeRow


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Rows of a search that its best is compared with: the ``fastest`` by predicted time alone, and the best of the
    ``safest``, those that are unlikely to run out of memory. None: there is none, or it is not known. ``unscored``: a
    better one of the safest may be among candidates that the search did not score."""

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
        Candidates that were counted.
    remarks
        Notes on the search.
    open_axes
        Choices beyond the axes of the space that the search left open.
    request
        Options of the search that its request does not have, as plain data.
    workers
        Who did the work.
    alternatives
        Rows that notes compare the first with.
    families
        Of an operator graph the best row of every family of splits.
    closest
        Where there are no rows, the legal candidate that misses the memory by least.
    flat_space
        Candidates of the flat space that was searched whole first; None where it is ``space`` itself.
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
    """Result of a search of strategy trees that better flat rows; counts as in ``TreeRows``, ``remarks`` as in
    ``Found``."""

    rows: tuple[TreeRow, ...]
    starts: int
    judged: int
    simulated: int
    remarks: tuple[str, ...] = ()
