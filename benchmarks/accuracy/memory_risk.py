"""Whether runs ran out of memory, against the share of the device that forerun predicts them to need.

Fits the curve of ``simulator/memory/risk.py`` to the tables that name runs which ran out, also with each table left
out, and counts what the curve in use says against what happened.
"""

from itertools import pairwise

import numpy as np
from likelihood import loss_of
from numpy.typing import NDArray
from scipy.optimize import minimize

from forerun.search.measured.validate import Predictions
from forerun.simulator.memory.risk import EVEN_SHARE, STEEPNESS, curve

Floats = NDArray[np.float64]

LEAST_OOM = 10
"""Runs out of memory that a table must name: others name the single one that a text tells of."""
NEAR = (0.5, 2.0)
"""Shares that the fit looks at: what is far emptier or fuller is never in doubt, and one wrong label there would bend
the whole curve."""
EDGES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.5, np.inf)


def fit(share: Floats, ran_out: Floats) -> tuple[float, float]:
    """Return the share at which half of the runs ran out, and the steepness: the likeliest logistic curve."""

    def loss(values: Floats) -> float:
        logits = values[1] * (np.log(share) - values[0])
        return float(np.sum(np.logaddexp(0.0, logits) - ran_out * logits))

    found = minimize(loss, np.array([0.0, 10.0]), method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-6})
    return float(np.exp(found.x[0])), float(found.x[1])


def markdown(predictions: Predictions) -> list[str]:
    """Return what happened by predicted share, and the fits."""
    share, ran_out, tables = labelled(predictions)
    if not len(share):
        return ["No table names runs that ran out of memory."]
    lines = [
        f"Risk in use: half at {EVEN_SHARE} of the memory, steepness {STEEPNESS:g} (`simulator/memory/risk.py`).",
        "",
        "| predicted share | runs | ran out | share that did | curve, mean |",
        "|---|---:|---:|---:|---:|",
    ]
    for low, high in pairwise(EDGES):
        here = (share >= low) & (share < high)
        if here.any():
            name = f"{low:g} to {high:g}" if np.isfinite(high) else f"above {low:g}"
            said = curve(share[here], EVEN_SHARE, STEEPNESS).mean()
            lines.append(
                f"| {name} | {here.sum()} | {ran_out[here].sum():.0f} | {ran_out[here].mean():.1%} | {said:.1%} |"
            )
    lines += ["", "| fitted to | runs near the limit | half at | steepness | loss per run | of the table left out |"]
    lines += [
        "|---|---:|---:|---:|---:|---:|",
        _fit_line("all tables", share, ran_out, tables == ""),
    ]
    lines += [_fit_line(f"all but {name}", share, ran_out, tables == name) for name in sorted(set(tables))]
    return lines


def labelled(predictions: Predictions) -> tuple[Floats, Floats, NDArray[np.str_]]:
    """Return predicted share, whether it ran out (0 or 1) and table of the runs of tables that say so."""
    outcomes = [run.outcome for run in predictions.runs]
    names = {run.file for run in predictions.runs}
    telling = {
        name
        for name in names
        if sum(run.file == name and run.outcome == "oom" for run in predictions.runs) >= LEAST_OOM
    }
    rows = [
        row
        for row, run in enumerate(predictions.runs)
        if run.file in telling and outcomes[row] in ("ok", "oom") and np.isfinite(predictions.peak_memory_bytes[row])
    ]
    whole = np.array([predictions.runs[row].context.cluster.device.memory_bytes for row in rows])
    ran_out = np.array([float(outcomes[row] == "oom") for row in rows])
    return predictions.peak_memory_bytes[rows] / whole, ran_out, np.array([predictions.runs[row].file for row in rows])


def _fit_line(name: str, share: Floats, ran_out: Floats, left_out: NDArray[np.bool_]) -> str:
    near = (share > NEAR[0]) & (share < NEAR[1])
    even, steepness = fit(share[near & ~left_out], ran_out[near & ~left_out])
    cells = [
        loss_of(curve(share[rows], even, steepness), ran_out[rows]) for rows in (near & ~left_out, near & left_out)
    ]
    return f"| {name} | {(near & ~left_out).sum()} | {even:.3f} | {steepness:.1f} | " + " | ".join(cells) + " |"
