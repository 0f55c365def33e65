"""The result of a search as a value, and its JSON and CSV forms."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from forerun.search.board.notebook import rows_html
from forerun.search.board.requested import Baseline, NextRuns, TreeRows
from forerun.search.board.rows import Row
from forerun.search.files.documents import SCHEMA
from forerun.spaces.files import csv_text
from forerun.spaces.frames import frame_of

NEAR_MARK = "within 1% of the best"
NEAR = 0.01
"""Relative difference of step time or cost within which rows are marked: below any model's error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceCounts:
    """Numbers of candidates of a space."""

    size: int
    """All candidates."""
    legal: int
    """Legal candidates."""
    feasible: int
    """Feasible candidates."""
    rejected: Mapping[str, int]
    """Rejected candidates by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """The best candidates of one search in rank order."""

    request: Mapping[str, Any]
    """The request as plain data."""
    space: SpaceCounts
    """Counts of candidates."""
    rows: tuple[Row[Any], ...]
    """The best rows in rank order."""
    why: str
    """Bottleneck of the first row and disadvantage of the second, as text."""
    defaults: tuple[str, ...]
    """Each value filled in by default."""
    remarks: tuple[str, ...]
    """Notes on the request and the search."""
    elapsed_s: float
    """Wall time of the search in seconds, start-up of the process not included."""
    versions: Mapping[str, str]
    """Versions of all software with influence on the result."""
    warnings: tuple[str, ...] = ()
    """Warnings printed above the rows."""
    workers: str = "in this process"
    """Description of the workers."""
    advice: tuple[str, ...] = ()
    """Notes on the rows."""
    baseline: Baseline | None = None
    """The user's current run compared with the first row, if one was named."""
    measure_next: NextRuns | None = None
    """Proposed runs to measure, if requested."""
    trees: TreeRows | None = None
    """Strategy trees and plans, if requested."""
    families: tuple[Row[Any], ...] = ()
    """Of an operator graph the best split of every family, whatever its rank."""

    @property
    def unit(self) -> str:
        """Unit of the work of a step: tokens, or images or samples of an operator graph."""
        return self.rows[0].unit if self.rows else "token"

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything that is to be noted."""
        return (*self.warnings, *self.remarks, *self.advice)

    @property
    def unmeasured(self) -> str:
        """Missing kinds of measured runs, as one sentence; empty if this framework was measured on this device."""
        evidence = self.rows[0].evidence if self.rows else None
        if evidence is None or evidence.near:
            return ""
        return f"{evidence.source[0].upper()}{evidence.source[1:]}: {self.rows[0].range_text}"

    def with_baseline(self, baseline: Baseline, named: Sequence[str], measured: str | None) -> Self:
        """Return the board with the user's run compared with its first row; the request has the run's name."""
        asked = {"baseline": list(named), "measured": measured}
        request = {**self.request, **{name: value for name, value in asked.items() if value}}
        return dataclasses.replace(self, baseline=baseline, request=request)

    @property
    def candidates_per_s(self) -> float:
        """Legal candidates scored per second of wall time."""
        return self.space.legal / self.elapsed_s if self.elapsed_s > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the document that ``forerun search --json`` prints."""
        document = {
            "schema": SCHEMA,
            "request": {
                **self.request,
                "defaults": list(self.defaults),
                "notes": list(self.notes),
                "workers": self.workers,
            },
            "space": dataclasses.asdict(self.space),
            "leaderboard": [row.to_json() for row in self.rows],
            "why": self.why,
            "elapsed_s": self.elapsed_s,
            "candidates_per_s": self.candidates_per_s,
            "versions": dict(self.versions),
        }
        if "modes" in self.request:
            document["families"] = [row.to_json() for row in self.families]
        if self.measure_next is not None:
            document["measure_next"] = self.measure_next.to_json()
        if self.trees is not None:
            document["trees"] = self.trees.to_json()
        if self.baseline is not None:
            document["baseline"] = self.baseline.to_json(self.rows[0])
        return document

    def to_csv(self) -> str:
        """Return the rows as CSV: one column per field, parts as ``time_<part>_s`` and ``memory_<part>_gib``."""
        return rows_to_csv(self.rows)

    def to_pandas(self) -> Any:
        """Return the rows as a ``pandas.DataFrame`` with the columns of ``to_csv``.

        Raises
        ------
        RequestError
            Pandas is not installed.
        """
        return frame_of([flat_line(row.to_json()) for row in self.rows])

    @property
    def title(self) -> str:
        """Model, cluster and number of candidates that fit."""
        request = self.request
        counts = request["gpu_counts"]
        gpus = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        return f"{request['model_name']} on {gpus} GPUs of {request['cluster_name']}: best of {self.space.feasible:,}"

    def _repr_html_(self) -> str:
        """Return the HTML of a notebook: the first rows as a table, and the reason of the first rank."""
        return rows_html([row.to_json() for row in self.rows], title=self.title, text=self.why)


def row_to_launch(rows: Sequence[Row[Any]]) -> Row[Any]:
    """Return the first of ranked rows with a launch file, or the first row if none has one."""
    return next((row for row in rows if not row.lacks_launch_file), rows[0])


def rows_to_csv(rows: tuple[Row[Any], ...]) -> str:
    """Return rows as CSV text with a header; empty text without rows."""
    return lines_to_csv([flat_line(row.to_json()) for row in rows])


def lines_to_csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return lines as CSV text with a header of all their keys; empty text without lines."""
    if not lines:
        return ""
    return csv_text(list(dict.fromkeys(name for line in lines for name in line)), lines)


def ranked(rows: tuple[Row[Any], ...], objective: str) -> tuple[Row[Any], ...]:
    """Give rows their places, and mark rows as good as the first."""
    result = []
    for place, row in enumerate(rows, start=1):
        ratio = row.gpus * row.step_time_s / (rows[0].gpus * rows[0].step_time_s)
        near = place > 1 and abs(ratio - 1) <= NEAR
        if objective != "cost":
            near = near and row.gpus == rows[0].gpus
        marks = (*row.marks, NEAR_MARK) if near else row.marks
        result.append(dataclasses.replace(row, rank=place, marks=marks))
    return tuple(result)


def flat_line(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's plain data with one entry per field: parts as ``time_<part>_s`` and ``memory_<part>_gib``."""
    line: dict[str, Any] = {}
    for name, value in data.items():
        if name == "breakdown_s":
            line.update({f"time_{part}_s": seconds for part, seconds in value.items()})
        elif name == "memory_gib":
            line.update({f"memory_{part}_gib": gib for part, gib in value.items()})
        elif name == "variants":
            line[name] = len(value)
        elif name == "evidence":
            line[name] = "; ".join(filter(None, (value["text"], value["basis"])))
        else:
            line[name] = "; ".join(value) if name == "marks" else value
    return line
