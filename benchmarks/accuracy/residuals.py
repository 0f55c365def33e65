"""Errors of predictions of measured runs, as the cells that every interval is taken from.

    python benchmarks/accuracy/residuals.py DIR [--check]

DIR holds CSV files of the schema in docs/measured-runs.md. Writes search/measured/intervals/data/residuals.json: for
every kind of runs (device, framework, experts, precision, number of devices, computing share of the step) of every
table the median error, the number of runs, and how much larger than expected the errors are with the group left out.
Tables are numbered, and no run can be recognised, as some may not be reproduced. Also writes
search/answer/data/checked.json, the figures by device and framework (``by_device.py``). Then prints the share of runs
within their interval with their group, their model and their table left out, by table; with --check that alone. Takes
a minute.
"""

import argparse
import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import by_device
import numpy as np
from left_out import Sample, believed, left_out, merged, sample_of, situations
from page import commit

from forerun.search.measured.intervals.cells import Floats, to_cells
from forerun.search.measured.intervals.variance import variances
from forerun.search.measured.validate import load_runs, predict

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "search" / "measured" / "intervals" / "data" / "residuals.json"
ABOUT = "Written by benchmarks/accuracy/residuals.py from measured runs, predicted with defaults only."


def main() -> int:
    """Predict all runs, write the cells and check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    files = sorted(args.folder.glob("*.csv"))
    if not files:
        sys.exit(f"no tables of runs in {args.folder}")
    predictions = predict(load_runs(files).runs)
    document: dict[str, Any] = {"about": ABOUT, "date": datetime.date.today().isoformat(), "commit": commit()}
    kinds: list[dict[str, Any]] = []
    for quantity in ("step", "memory"):
        sample = sample_of(predictions, quantity)
        known = believed(sample, variances(quantity))
        own, cells = to_cells(merged(known, quantity))
        document[quantity] = [[cell[0] + len(kinds), *cell[1:]] for cell in cells]
        kinds += own
        found = {one.name: left_out(known, one) for one in situations(sample)[:3]}
        print("\n".join(by_table(sample, quantity, found)))
    if not args.check:
        TARGET.write_text(_compact(document | {"kinds": kinds}), encoding="utf-8")
        print(f"wrote {TARGET.relative_to(ROOT)}: {len(document['step'])} and {len(document['memory'])} cells")
        figures = by_device.document(predictions)
        by_device.TARGET.write_text(json.dumps(figures, indent=1) + "\n")
        print(f"wrote {by_device.TARGET.relative_to(ROOT)}: {len(figures['entries'])} entries")
    return 0


def by_table(sample: Sample, quantity: str, found: dict[str, tuple[Floats, Floats]]) -> Sequence[str]:
    """Return lines with the share of every table's runs within their interval, and the interval's half width."""
    files = np.array([run.file for run in sample.runs])
    lines = [f"{quantity}: % of runs within their interval, and its half width, with what is left out"]
    lines += ["table, runs" + "".join(f", {name}" for name in found)]
    for file in [*np.unique(files), "all"]:
        mine = (files == file) | (file == "all")
        figures = []
        for mean, half in found.values():
            inside, width = (np.abs(sample.error - mean) <= half)[mine], np.expm1(np.median(half[mine]))
            figures.append(f"{100 * np.mean(inside):.0f} (±{100 * width:.0f})")
        lines.append(f"{file}, {mine.sum()}, {', '.join(figures)}")
    return lines


def _compact(document: dict[str, Any]) -> str:
    """Return a document with one kind or cell per line."""
    parts = []
    for name, value in document.items():
        if isinstance(value, list):
            body = ",\n".join("  " + json.dumps(item) for item in value)
            parts.append(f' "{name}": [\n{body}\n ]')
        else:
            parts.append(f' "{name}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
