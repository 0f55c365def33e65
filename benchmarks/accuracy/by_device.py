"""Accuracy by device, framework and kind of model, as the figures that a search and its HTML report show.

One entry for every device, framework and kind of model (with experts or dense) with measured runs, and for each of
these with any other. Tables whose devices are not stated, or whose models are tiny, are left out.
"""

import datetime
import itertools
from pathlib import Path
from typing import Any

import targets
from page import commit

from forerun.search.measured.intervals.parts import special_parts
from forerun.search.measured.validate import Metrics, Predictions, metrics_of

TARGET = Path(__file__).resolve().parents[2] / "search" / "answer" / "data" / "checked.json"
Key = tuple[str | None, str | None, bool | None]
"""Device, framework and whether the model has experts; None: any."""
FEWEST = 1
"""Runs from which on figures are given: their number stands beside them."""


def document(predictions: Predictions) -> dict[str, Any]:
    """Return the figures with their date and commit."""
    return {
        "about": "Written by benchmarks/accuracy/residuals.py from measured runs; of predictions with defaults only.",
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "entries": [entry for key, rows in _groups(predictions).items() if (entry := _entry(predictions, key, rows))],
    }


def _groups(predictions: Predictions) -> dict[Key, list[int]]:
    """Return rows by key; None stands for any."""
    groups: dict[Key, list[int]] = {}
    for row, run in enumerate(predictions.runs):
        if run.file in targets.LOW_TRUST:
            continue
        device, framework = run.context.cluster.device.name, run.context.framework.name
        for key in itertools.product((device, None), (framework, None), (run.context.moe, None)):
            groups.setdefault(key, []).append(row)
    return dict(sorted(groups.items(), key=lambda item: tuple(str(part or "") for part in item[0])))


def _entry(
    predictions: Predictions, key: Key, rows: list[int]
) -> dict[str, str | float | int | list[str] | None] | None:
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
    measured = [run for run in map(predictions.runs.__getitem__, rows) if run.step_time_s]
    largest = max(run.strategy.devices for run in measured)
    special = sorted({part for run in measured for part in special_parts(run.context.model)})
    precisions = sorted({run.context.workload.precision for run in measured})
    counts = {"rows": metrics.rows, "gpus": largest, "memory_rows": metrics.memory_rows, "oom_rows": metrics.oom_rows}
    rounded = {name: None if value is None else round(value, 1) for name, value in figures.items()}
    return {"device": key[0], "framework": key[1], "experts": key[2], **counts, "special": special,
            "precisions": precisions, **rounded}  # fmt: skip
