"""The dated result: a page, figures as JSON, predictions as CSV and a plot.

Rows of tables that are not in ``benchmarks/measured`` enter the figures, but are never written out one by one: their
licences do not allow it.
"""

import csv
import datetime
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

import cross_validate
import memory_risk
import numpy as np
import order_trust
import targets

from forerun.search.measured.validate import Metrics, Predictions, RunSet, Summary
from forerun.search.measured.validate.report import GIB, worst_rows

MEASURED = Path(__file__).resolve().parent.parent / "measured"
WORST = 20
RESTRICTED_TEXT = "stas00"
"""A publication without a licence, of which single rows stand in other tables."""


def write(
    folder: Path,
    runs: RunSet,
    predictions: Predictions,
    summary: Summary,
    folds: Sequence[cross_validate.Result],
    seconds: float,
    earlier: str = "",
) -> Path:
    """Write the result of one run of the benchmark and return the page; ``earlier``: commit whose folds they are."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{datetime.date.today().isoformat()}-accuracy"
    found = targets.reached(predictions)
    open_rows = publishable(predictions)
    document = {"date": datetime.date.today().isoformat(), "commit": commit(), "machine": _machine()}
    page = [
        *_head(document, runs, summary, seconds),
        "## Asked for and reached",
        "",
        *targets.markdown(found),
        "",
        "## Every table",
        "",
        *_figures(summary),
        "",
        "## Cross-validation",
        "",
        *([f"As of commit {earlier}.", ""] if earlier else []),
        *_cross_validation(folds),
        "",
        "## Out of memory, by how full a device is predicted to be",
        "",
        *memory_risk.markdown(predictions),
        "",
        "## Order, by how far apart two runs are predicted",
        "",
        *order_trust.markdown(predictions),
        "",
        "## Rows predicted worst",
        "",
        *_worst(predictions, open_rows),
        "",
        *_counts(summary),
    ]
    stem.with_suffix(".md").write_text("\n".join(page) + "\n", encoding="utf-8")
    figures = document | summary.to_json()
    figures |= {"targets": targets.to_json(found), "cross_validation": cross_validate.to_json(folds)}
    stem.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    _write_predictions(stem.with_suffix(".csv"), predictions, open_rows)
    return stem.with_suffix(".md")


def publishable(predictions: Predictions) -> list[int]:
    """Return the rows that may be written out: those of tables whose licence lets the project carry them."""
    known = {path.stem for path in MEASURED.glob("*.csv")}
    return [
        row
        for row, run in enumerate(predictions.runs)
        if run.file in known and RESTRICTED_TEXT not in f"{run.source} {run.cells['notes']}".lower()
    ]


def _head(document: dict[str, str], runs: RunSet, summary: Summary, seconds: float) -> list[str]:
    return [
        f"# Accuracy on measured runs, {document['date']}",
        "",
        "    python benchmarks/accuracy/run.py DIR",
        "",
        f"Commit {document['commit']}; {document['machine']}; {seconds:.0f} s in all.",
        "",
        f"Defaults only, nothing tuned per table. Predicted are {summary.overall.rows:,} steps of",
        f"{len(summary.parts)} tables, {summary.overall.memory_rows:,} memory peaks and {summary.overall.oom_rows:,}",
        f"runs that went out of memory; {len(runs.skipped):,} rows are skipped (reasons at the end). docs/accuracy.md",
        "says what the errors are made of.",
        "",
    ]


def _figures(summary: Summary) -> list[str]:
    heads = ["table", "rows", "MAPE %", "median %", "bias %", "groups", "tau", "pairs >5% %", "pairs >25% %"]
    heads += ["regret %", "of 3 %", "max %", "memory rows", "memory median %", "OOM rows", "recall %", "specificity %"]
    return [
        "Regret: how much slower than the best run of its group the one predicted fastest is (mean); of 3: the best of",
        "the three predicted fastest; max: worst group.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *(_line(name, metrics) for name, metrics in summary.parts.items()),
        _line("**all**", summary.overall),
    ]


def _line(name: str, m: Metrics) -> str:
    order = [m.pair_order_pct, m.wide_pair_order_pct, m.regret1_pct, m.regret3_pct, m.regret1_max_pct]
    cells = [name, str(m.rows), *map(cell, (m.mape_pct, m.median_ape_pct, m.bias_pct)), str(m.groups or "")]
    cells += [cell(m.kendall_tau, 2), *map(cell, order), str(m.memory_rows or ""), cell(m.memory_median_ape_pct)]
    cells += [str(m.oom_rows or ""), cell(m.oom_recall_pct), cell(m.oom_specificity_pct)]
    return "| " + " | ".join(cells) + " |"


def cell(value: float | None, digits: int = 1) -> str:
    """Return a figure as text; empty where there is none."""
    return "" if value is None else f"{value:.{digits}f}"


def _cross_validation(folds: Sequence[cross_validate.Result]) -> list[str]:
    pooled = [one for result in folds for one in result.pooled.values()]
    holds = sum(one["within_a_third"] for one in pooled)
    worse = [(one.title, fold) for one in folds for fold in one.folds if cross_validate.exceeds(fold)]
    count = sum(len(one.folds) for one in folds)
    return [
        "Constants that were chosen by looking at whole runs, refitted with a part of the runs left out. Errors are",
        "medians of step times; for memory they are the mean share of wrong verdicts plus the median error of peaks.",
        "Held-out errors stay within a third of (or one point above) the errors of the same rows when fitted in",
        f"{holds} of {len(pooled)} ways of leaving out. Against the rows that were kept, which may be easier, the same",
        f"holds in {count - len(worse)} of {count} folds; the others:",
        "",
        *(
            f"- {title}, {fold.by} {fold.part}: {fold.held_out_pct:.1f} % against {fold.fitted_pct:.1f} %"
            f" of the rows kept ({fold.same_rows_fitted_pct:.1f} % when fitted)"
            for title, fold in worse
        ),
        "",
        *cross_validate.markdown(folds),
    ]


def _worst(predictions: Predictions, open_rows: Sequence[int]) -> list[str]:
    allowed, lines = set(open_rows), ["| run | model | strategy | measured s | predicted s | largest parts s |"]
    lines.append("|---|---|---|---|---|---|")
    ranked = [row for row in worst_rows(predictions, len(predictions.runs)) if row in allowed]
    for row in ranked[:WORST]:
        run = predictions.runs[row]
        parts = sorted(((float(values[row]), part) for part, values in predictions.time_s.items()), reverse=True)[:3]
        shown = ", ".join(f"{part} {value:.3g}" for value, part in parts)
        times = f"{run.step_time_s:.4g} | {float(predictions.step_time_s[row]):.4g}"
        lines.append(f"| {run.run_id} | {run.cells['model']} | {run.strategy} | {times} | {shown} |")
    return lines


def _counts(summary: Summary) -> list[str]:
    lines = ["## Skipped rows", "", *(f"- {count}: {reason}" for reason, count in summary.skipped.items())]
    lines += ["", "## Filled in", "", *(f"- {count}: {rule}" for rule, count in summary.filled.items())]
    if summary.errors:
        lines += ["", "## Not predicted", "", *(f"- {count}: {error}" for error, count in summary.errors.items())]
    return lines


def _write_predictions(path: Path, predictions: Predictions, rows: Sequence[int]) -> None:
    heads = ("run_id", "step_time_s", "predicted_step_time_s", "peak_mem_gib", "predicted_peak_mem_gib", "outcome")
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*heads, "predicted_oom"])
        for row in rows:
            run, known = predictions.runs[row], bool(predictions.predicted[row])
            memory = predictions.comparable_memory_bytes[row] / GIB
            times = (run.cells["step_time_s"], f"{predictions.step_time_s[row]:.5g}" if known else "")
            peaks = (run.cells["peak_mem_gib"], f"{memory:.4g}" if known else "")
            writer.writerow([run.run_id, *times, *peaks, run.outcome, bool(predictions.oom[row]) if known else ""])


def commit() -> str:
    """Return the commit, and whether the product differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "spaces", "simulator", "search")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" with uncommitted changes" if changed else "")


def _machine() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf-8").splitlines() if known.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    versions = f"Python {platform.python_version()}, numpy {np.__version__}"
    return f"{os.cpu_count()} cores of {model or platform.machine()}, {versions}"
