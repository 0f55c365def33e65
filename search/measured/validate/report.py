"""A validation as tables for a terminal, and predictions as CSV."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from forerun.search.measured.validate.intervals import intervals_of
from forerun.search.measured.validate.metrics import WIDE_NOISE, Metrics, memory_error, time_error, timed_rows
from forerun.search.measured.validate.predict import Predictions
from forerun.search.measured.validate.summary import Summary
from forerun.spaces.files import csv_text, write_text

GIB = 2.0**30
PREDICTION_COLUMNS = (
    "run_id",
    "predicted_step_time_s",
    "predicted_low_s",
    "predicted_high_s",
    "predicted_peak_mem_gib",
    "predicted_low_mem_gib",
    "predicted_high_mem_gib",
    "predicted_oom",
    "evidence",
)


FIGURES: Mapping[str, Mapping[str, Callable[[Metrics], str]]] = {
    "step time": {
        "rows": lambda m: str(m.rows),
        "covered": lambda m: _percent(m.covered_pct),
        "MAPE": lambda m: _percent(m.mape_pct),
        "median": lambda m: _percent(m.median_ape_pct),
        "bias": lambda m: _percent(m.bias_pct),
        "in 80%": lambda m: _percent(m.within_interval_pct),
    },
    "order within groups": {
        "groups": lambda m: _number(m.groups),
        "tau": lambda m: "" if m.kendall_tau is None else f"{m.kendall_tau:.2f}",
        "pairs >{noise}%": lambda m: _percent(m.pair_order_pct),
        "pairs >{wide}%": lambda m: _percent(m.wide_pair_order_pct),
        "regret": lambda m: _percent(m.regret1_pct),
        "med": lambda m: _percent(m.regret1_median_pct),
        "max": lambda m: _percent(m.regret1_max_pct),
        "of 3": lambda m: _percent(m.regret3_pct),
    },
    "memory": {
        "mem rows": lambda m: _number(m.memory_rows),
        "mem med": lambda m: _percent(m.memory_median_ape_pct),
        "oom rec": lambda m: _percent(m.oom_recall_pct),
        "oom spec": lambda m: _percent(m.oom_specificity_pct),
    },
}
"""Figures by subject: the heading of a column, and its cell."""


def figures_tables(summary: Summary, fits: Callable[[Table], bool]) -> list[Table]:
    """Return the figures, one line per part and then all of them together: as one table if it ``fits``, else one table
    per subject. Columns without a figure are omitted.
    """
    title = f"accuracy and order, by {summary.by} (%)"
    total = _figures_table(title, summary, FIGURES)
    if fits(total):
        return [total]
    tables = [_figures_table(f"{what}, by {summary.by} (%)", summary, {what: FIGURES[what]}) for what in FIGURES]
    return [table for table in tables if len(table.columns) > 1]


def _figures_table(
    title: str, summary: Summary, figures: Mapping[str, Mapping[str, Callable[[Metrics], str]]]
) -> Table:
    parts = [*summary.parts.items(), ("ALL", summary.overall)]
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(summary.by, overflow="fold")
    columns = []
    for column in figures.values():
        for heading, cell in column.items():
            cells = [cell(metrics) for _, metrics in parts]
            if any(cells):
                title_text = heading.format(noise=f"{100 * summary.noise:.0f}", wide=f"{100 * WIDE_NOISE:.0f}")
                # A heading may take two lines; words are not broken.
                table.add_column(title_text, justify="right", min_width=max(map(len, [*title_text.split(), *cells])))
                columns.append(cells)
    for place, (name, _) in enumerate(parts):
        if name == "ALL":
            table.add_section()
        table.add_row(name, *(cells[place] for cells in columns))
    return table


def _number(value: int) -> str:
    return str(value) if value else ""


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def counts_table(title: str, counts: Mapping[str, int]) -> Group:
    """Return a table of counted texts below its title, which may be wider."""
    result = Table(show_header=False, box=None, padding=(0, 1, 0, 0))
    result.add_column(justify="right", no_wrap=True)
    result.add_column(overflow="fold")
    for text, count in counts.items():
        result.add_row(str(count), text)
    return Group(Text(title, style="table.title"), result)


def worst_rows(predictions: Predictions, count: int) -> list[int]:
    """Return the rows with the largest ratio between measured and predicted step time, worst first."""
    timed = timed_rows(predictions, range(len(predictions.runs)))
    with np.errstate(divide="ignore"):
        ratio = np.abs(np.log(1.0 + time_error(predictions, timed)))
    return [int(row) for row in timed[np.argsort(-ratio, kind="stable")][:count]]


def worst_table(predictions: Predictions, rows: Sequence[int]) -> Table:
    """Return a table of single runs, each with the parts of its predicted step, largest first."""
    table = Table(
        title="worst predicted (seconds)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("run", overflow="fold")
    for heading in ("measured", "predicted", "error %"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("predicted parts (s)", overflow="fold")
    for row in rows:
        run = predictions.runs[row]
        every = {part: float(values[row]) for part, values in predictions.time_s.items()}
        parts = {part: seconds for part, seconds in every.items() if not math.isnan(seconds)}
        largest = sorted((part for part in parts if parts[part] > 0), key=lambda part: -parts[part])
        table.add_row(
            f"{run.run_id}\n{run.cells['model']}, {run.cells['gpus']} {run.cells['device']}, {run.strategy}",
            *(f"{value:.4g}" for value in (run.step_time_s or 0.0, float(predictions.step_time_s[row]))),
            f"{100 * float(time_error(predictions, np.array([row]))[0]):+.0f}",
            ", ".join(f"{part} {parts[part]:.3g}" for part in largest),
        )
    return table


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


def write_predictions(path: Path, predictions: Predictions, evidence: Sequence[str]) -> None:
    """Write one line per predicted run: step time and peak (in the measured kind) with 80 % intervals, verdict and
    ``evidence`` (one text per run).

    Raises:
        RequestError: the file cannot be written.
    """
    intervals = intervals_of(predictions)
    values = (
        predictions.step_time_s,
        intervals.low_s,
        intervals.high_s,
        predictions.comparable_memory_bytes / GIB,
        intervals.memory_low_bytes / GIB,
        intervals.memory_high_bytes / GIB,
    )
    rows = (
        (
            predictions.runs[row].run_id,
            *(f"{value[row]:.9g}" for value in values),
            bool(predictions.oom[row]),
            evidence[row],
        )
        for row in np.flatnonzero(predictions.predicted).tolist()
    )
    write_text(path, csv_text(PREDICTION_COLUMNS, (dict(zip(PREDICTION_COLUMNS, row, strict=True)) for row in rows)))
