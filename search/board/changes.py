"""A change of one axis and its gain."""

from dataclasses import dataclass
from typing import Any

from forerun.search.board.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredChange:
    """A change of one axis with its row and the seconds added to the step (negative: faster)."""

    axis: str
    words: str
    row: Row[Any]
    added_s: float

    def to_json(self) -> dict[str, Any]:
        """Return the change as plain data."""
        return {"axis": self.axis, "change": self.words, "added_s": self.added_s, "row": self.row.to_json()}
