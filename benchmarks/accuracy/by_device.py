"""Accuracy by device and framework, as the figures that the HTML report shows for a search.

    python benchmarks/accuracy/by_device.py DIR

DIR holds CSV files of the schema in docs/measured-runs.md. Writes search/report/data/accuracy.yaml: one entry for every
device and framework with measured runs, and for each device, each framework and all runs together. Takes half a minute.
"""

import argparse
import datetime
import subprocess
import sys
from pathlib import Path

import yaml

from forerun.search.validate import Metrics, Predictions, load_runs, metrics_of, predict

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "search" / "report" / "data" / "accuracy.yaml"
FEWEST = 5
"""Runs below which a median says nothing."""
HEAD = "# Written by benchmarks/accuracy/by_device.py from measured runs; figures of predictions with defaults only.\n"


def main() -> int:
    """Predict all runs and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    files = sorted(folder.glob("*.csv"))
    if not files:
        sys.exit(f"no tables of runs in {folder}")
    predictions = predict(load_runs(files).runs)
    document = {
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "entries": [entry for key, rows in _groups(predictions).items() if (entry := _entry(predictions, key, rows))],
    }
    TARGET.write_text(HEAD + yaml.safe_dump(document, sort_keys=False, width=160, default_flow_style=None))
    print(f"wrote {TARGET.relative_to(ROOT)}: {len(document['entries'])} entries")
    return 0


def _groups(predictions: Predictions) -> dict[tuple[str | None, str | None], list[int]]:
    """Return rows by (device, framework); None stands for any."""
    groups: dict[tuple[str | None, str | None], list[int]] = {}
    for row, run in enumerate(predictions.runs):
        device, framework = run.context.cluster.device.name, run.context.framework.name
        for key in ((device, framework), (device, None), (None, framework), (None, None)):
            groups.setdefault(key, []).append(row)
    return dict(sorted(groups.items(), key=lambda item: (item[0][0] or "", item[0][1] or "")))


def _entry(
    predictions: Predictions, key: tuple[str | None, str | None], rows: list[int]
) -> dict[str, str | float | int | None] | None:
    metrics: Metrics = metrics_of(predictions, rows)
    if metrics.rows < FEWEST:
        return None
    figures = {
        "median_pct": metrics.median_ape_pct,
        "bias_pct": metrics.bias_pct,
        "pairs_pct": metrics.wide_pair_order_pct,
        "memory_pct": metrics.memory_median_ape_pct if metrics.memory_rows >= FEWEST else None,
        "oom_recall_pct": metrics.oom_recall_pct,
        "oom_specificity_pct": metrics.oom_specificity_pct,
    }
    counts = {"rows": metrics.rows, "memory_rows": metrics.memory_rows, "oom_rows": metrics.oom_rows}
    rounded = {name: None if value is None else round(value, 1) for name, value in figures.items()}
    return {"device": key[0], "framework": key[1], **counts, **rounded}


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
