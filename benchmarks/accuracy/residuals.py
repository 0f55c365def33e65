"""What is left over of predictions of measured runs, as the cells that every interval is taken from.

    python benchmarks/accuracy/residuals.py DIR [--check]

DIR holds CSV files of the schema in docs/measured-runs.md. Writes search/measured/certainty/data/residuals.json: for
every kind of runs (device, framework, experts, precision, number of devices, computing share of the step) of every
table, quantiles of measured over predicted. Tables are numbered, and no run is told apart, as some may not be
reproduced. Then prints the share of runs within their interval with their table, and with their group, left out; with
--check that alone.
"""

import argparse
import datetime
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from forerun.search.measured.certainty.intervals import Peaks, busy_share, intervals
from forerun.search.measured.certainty.residuals import RunClass, joined, kind_of, over_peak, peak_ratio
from forerun.search.measured.validate import MeasuredRun, Predictions, load_runs, predict

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "search" / "certainty" / "data" / "residuals.json"
QUANTILES = 9
"""Quantiles that a cell keeps at most."""
GPU_BINS, BUSY_BINS = 2.0, 5.0
"""Doublings of devices that share a cell; cells of the computing share from 0 to 1."""
PEAK_BINS = 1.0
"""Doublings of predicted peaks that share a cell of peaks."""
Row = tuple[int, MeasuredRun, float, float, float, float]
"""Number of the table, run, computing share, log ratio of the step and of the peak (NaN: not measured), predicted peak
in bytes, read as it was measured."""


def main() -> int:
    """Predict all runs, write the cells and check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    files = sorted(args.folder.glob("*.csv"))
    if not files:
        sys.exit(f"no tables of runs in {args.folder}")
    rows = rows_of(predict(load_runs(files).runs))
    if not args.check:
        document = {
            "about": "Written by benchmarks/accuracy/residuals.py from measured runs, predicted with defaults only.",
            "date": datetime.date.today().isoformat(),
            "commit": _commit(),
            "cells": cells_of(rows),
        }
        TARGET.write_text(_compact(document))
        print(f"wrote {TARGET.relative_to(ROOT)}: {len(document['cells'])} cells")
    for quantity in ("step", "memory"):
        print("\n".join(check(rows, quantity)))
    return 0


def rows_of(predictions: Predictions) -> list[Row]:
    """Return every run that was measured and predicted."""
    tables = {name: place for place, name in enumerate(sorted({run.file for run in predictions.runs}))}
    busy = busy_share(predictions.time_s)
    rows = []
    for place, run in enumerate(predictions.runs):
        if run.outcome != "ok" or not predictions.predicted[place]:
            continue
        step = np.log((run.step_time_s or np.nan) / predictions.step_time_s[place])
        peak = float(predictions.comparable_memory_bytes[place])
        held = np.log(peak_ratio(run.peak_memory_bytes or np.nan, peak))
        rows.append((tables[run.file], run, float(busy[place]), float(step), float(held), peak))
    return rows


def cells_of(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return rows as cells with quantiles: those of steps, then those of peaks."""
    groups: dict[tuple[int, RunClass, tuple[Any, ...]], list[Row]] = {}
    for row in rows:
        table, run, busy, step, held, peak = row
        place = (round(np.log2(run.strategy.devices) / GPU_BINS), round(busy * BUSY_BINS))
        if np.isfinite(step):
            groups.setdefault((table, _kind(run), ("step", *place)), []).append(row)
        if np.isfinite(held):
            how = ("memory", *place, run.memory_kind, round(np.log2(peak) / PEAK_BINS))
            groups.setdefault((table, _kind(run), how), []).append(row)
    cells = []
    for (table, kind, how), members in sorted(groups.items(), key=lambda item: (item[0][0], str(item[0][1:]))):
        gpus = np.exp(np.mean([np.log(run.strategy.devices) for _, run, *_ in members]))
        cell = {
            "table": table,
            "kind": asdict(kind),
            "gpus": round(float(gpus)),
            "busy": round(float(np.mean([busy for _, _, busy, *_ in members])), 2),
        }
        quantity = str(how[0])
        told: dict[str, Any] = {"rows": len(members)}
        if quantity == "memory":
            peak = float(np.exp(np.mean([np.log(row[5]) for row in members])))
            told |= {"reading": how[3], "peak_bytes": float(f"{peak:.2e}")}
        told["log_ratio"] = _quantiles([row[3 if quantity == "step" else 4] for row in members])
        cells.append({**cell, quantity: told})
    return cells


def _kind(run: MeasuredRun) -> RunClass:
    return kind_of(run.context, run.strategy.zero)


def _quantiles(values: Sequence[float]) -> list[float]:
    count = min(len(values), QUANTILES)
    return [round(float(value), 3) for value in np.quantile(values, (np.arange(count) + 0.5) / count)]


LEFT_OUT: tuple[tuple[str, Callable[[Row], Any]], ...] = (
    ("table", lambda row: row[0]),
    ("group", lambda row: (row[0], row[1].group)),
)
"""What is left out in turn."""


def check(rows: Sequence[Row], quantity: str) -> list[str]:
    """Return lines with the share of runs within their interval: what it is taken from lacks their table or group."""
    place = 3 if quantity == "step" else 4
    timed = [row for row in rows if np.isfinite(row[place])]
    tables = sorted({(row[0], row[1].file) for row in timed})
    found = {name: inside(timed, quantity, key) for name, key in LEFT_OUT}
    lines = [f"{quantity}: % of runs within their interval, and its half width, with what is left out", "table, runs"]
    lines[1] += "".join(f", {name}" for name in found)
    for number, file in [*tables, (None, "all")]:
        mine = np.array([number in (None, row[0]) for row in timed])
        figures = [
            f"{100 * hit[mine].mean():.0f} (±{100 * np.median(width[mine]):.0f})" for hit, width in found.values()
        ]
        lines.append(f"{file}, {mine.sum()}, {', '.join(figures)}")
    return lines


def inside(timed: Sequence[Row], quantity: str, key: Callable[[Row], Any]) -> tuple[Any, Any]:
    """Return which runs lie within their interval, and half its width over the prediction."""
    place = 3 if quantity == "step" else 4
    hit, width = np.zeros(len(timed), dtype=bool), np.zeros(len(timed))
    parts: dict[tuple[Any, RunClass, str], list[int]] = {}
    for index, row in enumerate(timed):
        parts.setdefault((key(row), _kind(row[1]), row[1].memory_kind), []).append(index)
    kept: dict[Any, Any] = {}
    for (part, kind, reading), members in parts.items():
        if part not in kept:
            kept = {part: joined(cells_of(row for row in timed if key(row) != part), quantity)}
        gpus = np.array([float(timed[index][1].strategy.devices) for index in members])
        busy = np.array([timed[index][2] for index in members])
        ratio = np.exp([timed[index][place] for index in members])
        peaks = None
        if quantity == "memory":
            peaks = Peaks(peak_bytes=np.array([timed[index][5] for index in members]), reading=reading)
            ratio = over_peak(ratio, peaks.peak_bytes)
        sure = intervals(kept[part], kind, gpus, busy, peaks)
        hit[members] = (sure.low <= ratio) & (ratio <= sure.high)
        width[members] = (sure.high - sure.low) / 2
    return hit, width


def _compact(document: dict[str, Any]) -> str:
    """Return a document with one cell per line."""
    cells = ",\n".join("  " + json.dumps(cell) for cell in document["cells"])
    head = json.dumps({key: value for key, value in document.items() if key != "cells"}, indent=1)
    return f'{head[:-2]},\n "cells": [\n{cells}\n ]\n}}\n'


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
