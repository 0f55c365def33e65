"""A validation as tables for a terminal, and predictions as CSV."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from forerun.search.validate.metrics import WIDE_NOISE, Metrics, memory_error, time_error, timed_rows
from forerun.search.validate.predict import Predictions
from forerun.search.validate.summary import Summary
from forerun.simulator import TIME_PARTS
from forerun.spaces.errors import RequestError

GIB = 2.0**30
PREDICTION_COLUMNS = ("run_id", "predicted_step_time_s", "predicted_peak_mem_gib", "predicted_oom")


def figures_table(summary: Summary) -> Table:
    """Return the table of figures: one line per part, then all of them together."""
    result = Table(title=f"accuracy and order, by {summary.by}", title_justify="left")
    result.add_column(summary.by, overflow="fold")
    headings = ("rows", "covered", "MAPE", "median", "bias", "groups", "tau")
    pairs = (f"pairs >{100 * summary.noise:.0f}%", f"pairs >{100 * WIDE_NOISE:.0f}%")
    for heading in (*headings, *pairs, "regret", "med", "max", "of 3", "mem rows", "mem med", "oom rec", "oom spec"):
        result.add_column(heading, justify="right")
    for name, metrics in summary.parts.items():
        result.add_row(name, *_cells(metrics))
    result.add_section()
    result.add_row("ALL", *_cells(summary.overall), style="bold")
    return result


def _cells(m: Metrics) -> list[str]:
    percents = [m.covered_pct, m.mape_pct, m.median_ape_pct, m.bias_pct]
    order = [m.pair_order_pct, m.wide_pair_order_pct]
    regret = [m.regret1_pct, m.regret1_median_pct, m.regret1_max_pct, m.regret3_pct]
    return [
        str(m.rows),
        *map(_percent, percents),
        str(m.groups) if m.groups else "",
        "" if m.kendall_tau is None else f"{m.kendall_tau:.2f}",
        *map(_percent, order),
        *map(_percent, regret),
        str(m.memory_rows) if m.memory_rows else "",
        _percent(m.memory_median_ape_pct),
        _percent(m.oom_recall_pct),
        _percent(m.oom_specificity_pct),
    ]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def counts_table(title: str, counts: Mapping[str, int]) -> Table:
    """Return a table of counted texts."""
    result = Table(title=title, title_justify="left", show_header=False)
    result.add_column(justify="right")
    result.add_column(overflow="fold")
    for text, count in counts.items():
        result.add_row(str(count), text)
    return result


def worst_rows(predictions: Predictions, count: int) -> list[int]:
    """Return the rows with the largest ratio between measured and predicted step time, worst first."""
    timed = timed_rows(predictions, range(len(predictions.runs)))
    with np.errstate(divide="ignore"):
        ratio = np.abs(np.log(1.0 + time_error(predictions, timed)))
    return [int(row) for row in timed[np.argsort(-ratio, kind="stable")][:count]]


def worst_table(predictions: Predictions, rows: Sequence[int]) -> Table:
    """Return a table of single runs with the parts of their predicted step (seconds)."""
    result = Table(title="worst predicted (seconds)", title_justify="left")
    for heading in ("run_id", "model", "device", "gpus", "strategy"):
        result.add_column(heading, overflow="fold")
    shown = [part for part in TIME_PARTS if part in predictions.time_s]
    for heading in ("measured", "predicted", "error %", *shown):
        result.add_column(heading, justify="right")
    for row in rows:
        run = predictions.runs[row]
        values = (run.step_time_s or 0.0, float(predictions.step_time_s[row]))
        result.add_row(
            run.run_id,
            run.cells["model"],
            run.cells["device"],
            run.cells["gpus"],
            str(run.strategy),
            *(f"{value:.4g}" for value in values),
            f"{100 * float(time_error(predictions, np.array([row]))[0]):+.0f}",
            *(f"{float(predictions.time_s[part][row]):.3g}" for part in shown),
        )
    return result


def worst_json(predictions: Predictions, rows: Sequence[int]) -> list[dict[str, object]]:
    """Return single runs with their breakdown as plain data."""
    return [
        {
            "run_id": predictions.runs[row].run_id,
            "model": predictions.runs[row].cells["model"],
            "device": predictions.runs[row].cells["device"],
            "strategy": str(predictions.runs[row].strategy),
            "measured_step_time_s": predictions.runs[row].step_time_s,
            "predicted_step_time_s": float(predictions.step_time_s[row]),
            "error_pct": 100.0 * float(time_error(predictions, np.array([row]))[0]),
            "breakdown_s": {part: float(values[row]) for part, values in predictions.time_s.items()},
            "memory_error_pct": _finite(100.0 * float(memory_error(predictions, np.array([row]))[0])),
        }
        for row in rows
    ]


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def write_predictions(path: Path, predictions: Predictions) -> None:
    """Write one line per predicted run: step time, peak memory in the kind that was measured, and verdict.

    Raises:
        RequestError: the file cannot be written.
    """
    try:
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(PREDICTION_COLUMNS)
            for row in np.flatnonzero(predictions.predicted):
                step_time_s, memory = predictions.step_time_s[row], predictions.comparable_memory_bytes[row] / GIB
                verdict = bool(predictions.oom[row])
                writer.writerow([predictions.runs[row].run_id, f"{step_time_s:.9g}", f"{memory:.9g}", verdict])
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror or error}") from None
