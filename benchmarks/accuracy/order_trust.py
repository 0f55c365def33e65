"""Whether pairs of runs are in the predicted order, against how far apart they are predicted.

Fits the curve of ``search/answer/explain/why.py`` to the pairs of every group of runs that differ in
strategy only, also with each table left out, and counts what the curve in use says against what happened. A group
counts by its runs, not by its pairs, of which one group of 60 has as many as 18 groups of 15.
"""

from itertools import pairwise

import numpy as np
from likelihood import loss_of
from numpy.typing import NDArray
from scipy.optimize import minimize

from forerun.search.answer.explain.why import SCALE, SHAPE, curve
from forerun.search.measured.validate import Predictions
from forerun.search.measured.validate.metrics import SMALLEST_GROUP, timed_rows

Floats = NDArray[np.float64]

EDGES = (0.0, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, np.inf)
LEAST_PAIRS = 200
"""Pairs a table must have to be left out on its own."""


def fit(gap: Floats, right: Floats, weight: Floats) -> tuple[float, float]:
    """Return the likeliest scale and shape."""

    def loss(values: Floats) -> float:
        said = np.clip(curve(gap, float(np.exp(values[0])), float(np.exp(values[1]))), 1e-9, 1 - 1e-9)
        return -float(np.sum(weight * np.where(right > 0, np.log(said), np.log(1 - said))))

    found = minimize(loss, np.log([0.1, 0.7]), method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-6})
    scale, shape = np.exp(found.x)
    return float(scale), float(shape)


def markdown(predictions: Predictions) -> list[str]:
    """Return what happened by predicted gap, and the fits."""
    gap, right, weight, tables = pairs(predictions)
    if not len(gap):
        return ["No group has runs enough."]
    lines = [
        f"Curve in use: scale {SCALE}, shape {SHAPE} (`search/answer/explain/why.py`). A group counts by its runs.",
        "",
        "| predicted gap | pairs | in order | curve, mean |",
        "|---|---:|---:|---:|",
    ]
    for low, high in pairwise(np.log1p(EDGES)):
        here = (gap >= low) & (gap < high)
        if here.any():
            name = f"{np.expm1(low):.1%} to {np.expm1(high):.1%}" if np.isfinite(high) else f"above {np.expm1(low):.0%}"
            shares = (np.average(values[here], weights=weight[here]) for values in (right, curve(gap, SCALE, SHAPE)))
            lines.append(f"| {name} | {here.sum()} | " + " | ".join(f"{share:.1%}" for share in shares) + " |")
    lines += ["", "| fitted to | pairs | scale | shape | loss per pair | of the table left out |"]
    lines += ["|---|---:|---:|---:|---:|---:|"]
    large = [name for name in sorted(set(tables)) if (tables == name).sum() >= LEAST_PAIRS]
    for name, left_out in [("all", tables == ""), *((f"all but {name}", tables == name) for name in large)]:
        kept = ~left_out
        found = fit(gap[kept], right[kept], weight[kept])
        cells = [loss_of(curve(gap[rows], *found), right[rows], weight[rows]) for rows in (kept, left_out)]
        lines.append(f"| {name} | {kept.sum()} | {found[0]:.3f} | {found[1]:.2f} | " + " | ".join(cells) + " |")
    return lines


def pairs(predictions: Predictions) -> tuple[Floats, Floats, Floats, NDArray[np.str_]]:
    """Return predicted gap, whether in order (0 or 1), weight and table of all pairs of runs of a group; pairs that are
    measured or predicted alike have no order."""
    members: dict[str, list[int]] = {}
    for row in timed_rows(predictions, range(len(predictions.runs))):
        if group := predictions.runs[row].group:
            members.setdefault(group, []).append(int(row))
    parts: list[tuple[Floats, Floats, Floats, NDArray[np.str_]]] = []
    for rows in members.values():
        if len(rows) < SMALLEST_GROUP:
            continue
        first, second = np.triu_indices(len(rows), 1)
        said = np.log(predictions.step_time_s[rows])
        was = np.log(np.array([predictions.runs[row].step_time_s for row in rows], dtype=float))
        said_gap, was_gap = said[first] - said[second], was[first] - was[second]
        told = (np.abs(said_gap) > 1e-9) & (was_gap != 0)
        count = int(told.sum())
        parts.append(
            (
                np.abs(said_gap[told]),
                (said_gap[told] * was_gap[told] > 0).astype(float),
                np.full(count, len(rows) / max(count, 1)),
                np.full(count, predictions.runs[rows[0]].file),
            )
        )
    if not parts:
        return np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0, dtype=str)
    gap, right, weight, tables = (np.concatenate(column) for column in zip(*parts, strict=True))
    return gap, right, weight, tables
