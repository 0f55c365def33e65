"""Comparison of the user's present run with the best of a leaderboard."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forerun.search.board.changes import ScoredChange
from forerun.search.board.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A measured step of the run: the median of ``counted`` steps, with the tenth and ninetieth percentile.

    Those three are None where the user named a time and no log. ``ratio`` is measured over predicted, and
    ``best_step_time_s`` what the best takes if its prediction is off by the same factor; both are None where the
    measurement is of another workload, which ``Baseline.notes`` then says.
    """

    source: str
    step_time_s: float
    counted: int | None
    low_s: float | None
    high_s: float | None
    ratio: float | None
    best_step_time_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The user's present run as a row, and where its time goes against the best row.

    ``source`` names the files or the strategy text; ``format`` is that of the files, None for a text. ``framework`` is
    the profile that the run was predicted with. ``faster_rows`` counts rows of the board with more tokens per second
    and GPU. ``changes`` are the changes of one axis that would help the run most, by closed forms. ``switches``: the
    software as the run has it. ``unmodelled`` are settings of the files known to change speed or memory that the
    prediction does not hear, ``other`` those that change neither, ``unknown`` all others.
    """

    source: str
    format: str | None
    framework: str
    row: Row
    faster_rows: int
    text: str
    changes: tuple[ScoredChange, ...]
    notes: tuple[str, ...]
    other: Mapping[str, Any]
    unknown: Mapping[str, Any]
    switches: Mapping[str, str] = field(default_factory=dict)
    unmodelled: Mapping[str, Any] = field(default_factory=dict)
    measured: MeasuredStep | None = None

    def difference_s(self, best: Row) -> dict[str, float]:
        """Return the seconds that each part of a step takes longer than in ``best`` (negative: shorter).

        Times on another number of GPUs are scaled to that of ``best``, so that parts compare as GPU time; of operator
        graphs, whose batch may grow with the GPUs, to its samples.
        """
        scale = self.row.gpus / best.gpus
        if self.row.facts is not None and best.facts is not None:
            scale *= best.facts.global_batch / self.row.facts.global_batch
        return {part: scale * self.row.breakdown_s[part] - seconds for part, seconds in best.breakdown_s.items()}

    def difference_gib(self, best: Row) -> dict[str, float]:
        """Return the GiB that each part of the fullest device takes more than in ``best``."""
        return {part: self.row.memory_gib[part] - gib for part, gib in best.memory_gib.items()}

    def to_json(self, best: Row) -> dict[str, Any]:
        """Return the comparison with ``best`` as plain data."""
        return {
            "source": self.source,
            "format": self.format,
            "framework": self.framework,
            "row": self.row.to_json(),
            "faster_rows": self.faster_rows,
            "difference_s": self.difference_s(best),
            "difference_gib": self.difference_gib(best),
            "text": self.text,
            "changes": [change.to_json() for change in self.changes],
            "measured": None if self.measured is None else dataclasses.asdict(self.measured),
            "notes": list(self.notes),
            "switches": dict(self.switches),
            "unmodelled": {key: str(value) for key, value in self.unmodelled.items()},
            "other": {key: str(value) for key, value in self.other.items()},
            "unknown": {key: str(value) for key, value in self.unknown.items()},
        }
