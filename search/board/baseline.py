"""Changes of one axis, and the comparison of the user's current run with the best row."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A measured step of the run: the median of ``counted`` steps, with the tenth and ninetieth percentile.

    ``counted`` and both percentiles are None for a step time without a log. ``ratio`` is measured over predicted,
    ``best_step_time_s`` the best row's prediction times this ratio; both are None, with an entry in ``Baseline.notes``,
    if the measurement is of another workload.
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
    """The user's current run as a row, and its time differences from the best row.

    ``source`` names the files or the strategy text; ``format`` is the format of the files, None for a text.
    ``framework`` is the profile that the run was predicted with. ``faster_rows`` counts rows of the board with more
    tokens per second and GPU. ``changes`` are the most helpful changes of one axis, by closed forms. ``switches``:
    software settings of the run. ``unmodelled`` are settings of the files known to change speed or memory that the
    prediction ignores, ``other`` settings change neither, ``unknown`` all others.
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
        """Return the difference of each part of a step from ``best``, in s (negative: shorter).

        Times on another number of GPUs are scaled to that of ``best``, as GPU time; for operator graphs, whose batch
        may grow with the GPUs, to the samples of ``best``.
        """
        scale = self.row.gpus / best.gpus
        if self.row.facts is not None and best.facts is not None:
            scale *= best.facts.global_batch / self.row.facts.global_batch
        return {part: scale * self.row.breakdown_s[part] - seconds for part, seconds in best.breakdown_s.items()}

    def difference_gib(self, best: Row) -> dict[str, float]:
        """Return the difference of each memory part of the fullest device from ``best``, in GiB."""
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
