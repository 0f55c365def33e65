"""Parts of a leaderboard on request: strategy trees, and runs to measure next."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forerun.search.board.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRow:
    """A strategy tree that is faster than its flat start.

    ``row``: its event-level figures, ranked among the flat rows (``row.rank`` 1: faster than all flat rows). ``start``:
    the flat strategy; ``start_s``: its step event by event, None if the start does not fit. ``changes``: the
    differences as text. ``yaml``: the tree as ``simulate --tree`` reads it.
    """

    row: Row[Any]
    start: str
    start_s: float | None
    changes: tuple[str, ...]
    yaml: str

    @property
    def gain(self) -> float | None:
        """Gain over its start, as a share; None if the start does not fit."""
        return None if self.start_s is None else self.start_s / self.row.step_time_s - 1

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain data, with the tree."""
        return {
            **self.row.to_json(),
            "start": self.start,
            "start_step_time_s": self.start_s,
            "gain": self.gain,
            "changes": list(self.changes),
            "tree": self.yaml,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRows:
    """Trees in rank order, with the counts of their search.

    ``starts``: number of flat starts; ``judged``: trees with checked laws and memory; ``simulated``: simulated trees.
    ``gain``: gain of the best tree over the best flat row.
    """

    rows: tuple[TreeRow, ...]
    starts: int
    judged: int
    simulated: int
    gain: float

    def to_json(self) -> Mapping[str, Any]:
        """Return the rows and counts as plain data."""
        return {
            "starts": self.starts,
            "judged": self.judged,
            "simulated": self.simulated,
            "gain": self.gain,
            "rows": [row.to_json() for row in self.rows],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    """One run to measure.

    ``gain``: expected decrease of the final choice's regret (for accuracy: of the mean uncertainty), as a share of the
    step time.
    """

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
