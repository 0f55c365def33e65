"""Parts of a leaderboard on request: strategy trees, runs to measure next, the user's current run."""

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
