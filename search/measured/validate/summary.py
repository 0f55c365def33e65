"""The result of a validation: figures per table of results and over all, skipped rows and filled blanks."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from forerun.search.measured.validate.intervals import intervals_of
from forerun.search.measured.validate.metrics import NOISE, Metrics, metrics_of
from forerun.search.measured.validate.predict import Predictions
from forerun.search.measured.validate.runs import RULES, RunSet
from forerun.spaces.errors import unknown

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """``parts``: figures by table of results (or by the value of a column), ``overall`` over all tables.

    ``skipped``: rows that could not be mapped, by reason. ``filled``: numbers of runs by the text of a used rule.
    ``laws``: measured runs that break a legality law, by its code.
    """

    by: str
    noise: float
    parts: Mapping[str, Metrics]
    overall: Metrics
    skipped: Mapping[str, int]
    filled: Mapping[str, int]
    laws: Mapping[str, int]
    errors: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        return {
            "schema": SCHEMA,
            "rows": self.overall.rows,
            "by": self.by,
            "noise": self.noise,
            "skipped": dict(self.skipped),
            "filled": dict(self.filled),
            "broken_laws": dict(self.laws),
            "errors": dict(self.errors),
            "overall": asdict(self.overall),
            "sources": {name: asdict(metrics) for name, metrics in self.parts.items()},
        }


def summarise(runs: RunSet, predictions: Predictions, *, by: str | None = None, noise: float = NOISE) -> Summary:
    """Return the figures of some predictions.

    ``by``: column whose values split the runs (default: by table of results, the run_id without its number).

    Raises:
        RequestError: there is no such column.
    """
    intervals = intervals_of(predictions)
    rows = list(range(len(predictions.runs)))
    parts: dict[str, list[int]] = {}
    for row in rows:
        parts.setdefault(_part(predictions, row, by), []).append(row)
    return Summary(
        by=by or "table",
        noise=noise,
        parts={
            name: metrics_of(
                predictions,
                members,
                noise=noise,
                measured=None if by else runs.measured.get(name),
                intervals=intervals,
            )
            for name, members in sorted(parts.items())
        },
        overall=metrics_of(predictions, rows, noise=noise, measured=sum(runs.measured.values()), intervals=intervals),
        skipped=_counted(skipped.reason for skipped in runs.skipped),
        filled=_counted(RULES[code] for run in predictions.runs for code in run.filled),
        laws=_counted(code for row in rows for code in predictions.laws[row]),
        errors=predictions.errors,
    )


def _part(predictions: Predictions, row: int, by: str | None) -> str:
    run = predictions.runs[row]
    if by is None:
        return run.file
    if by not in run.cells:
        raise unknown("column", by, run.cells)
    return run.cells[by] or "(blank)"


def _counted(items: Any) -> dict[str, int]:
    """Count items, most frequent first, ties by name."""
    return dict(sorted(Counter(items).items(), key=lambda entry: (-entry[1], entry[0])))
