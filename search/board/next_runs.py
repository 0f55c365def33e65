"""Runs worth measuring next, as values."""

from dataclasses import dataclass
from typing import Any

from forerun.search.board.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    """One run to measure: its row, and the expected fall of the final choice's regret (for accuracy: of the mean
    uncertainty), as a share of the step time."""

    row: Row
    gain: float

    def to_json(self) -> dict[str, Any]:
        """Return the run as plain data."""
        return {"strategy": self.row.name, "rank": self.row.rank, "gpus": self.row.gpus, "gain": self.gain}


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRuns:
    """Runs to measure, most useful first; ``regret``: expected loss of the present choice."""

    rule: str
    regret: float
    runs: tuple[NextRun, ...]
    measured: int

    def to_json(self) -> dict[str, Any]:
        """Return the proposal as plain data."""
        return {
            "rule": self.rule,
            "expected_regret": self.regret,
            "measured_among_candidates": self.measured,
            "runs": [run.to_json() for run in self.runs],
        }
