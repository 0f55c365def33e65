"""What is said of runs out of memory before and after ten runs, against what happened (used by calibration_memory.py).

Runs of the tables that name runs which ran out, predicted to need half to twice the device, as for the fit of the curve
itself (``benchmarks/accuracy/memory_risk.py``); none of them is among the ten.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from forerun.search.measured.validate import MeasuredRun
from forerun.simulator import score
from forerun.simulator.calibration import MemoryPosterior, nothing_measured
from forerun.simulator.memory import risk as memory_risk
from forerun.simulator.memory.risk import EVEN_SHARE, PEAKS_SHARE, STEEPNESS, curve
from forerun.spaces.strategies import table_of

Floats = NDArray[np.float64]

LEAST_OOM = 10
"""Runs out of memory that a table must name: others name the single one that a text tells of."""
NEAR = (0.5, 2.0)
SHARES = (0.0, 0.25, 0.5, 1.0)
"""Shares of the curve's variance that runs can take away, which are tried."""
EDGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
_CERTAIN = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What is said of N runs that were not drawn, and whether each ran out of memory (0 or 1).

    ``generic``: the curve at the catalogue's peak; ``moved``: the curve at the calibrated peak; ``calibrated``: the
    risk in use; ``by_share``: the same with other shares [S, N] of ``SHARES``. ``table``: where each run is from.
    """

    ran_out: Floats
    generic: Floats
    moved: Floats
    calibrated: Floats
    by_share: Floats
    table: NDArray[np.str_]


def telling_tables(runs: Sequence[MeasuredRun]) -> set[str]:
    """Return the tables that name runs which ran out of memory."""
    named = [run.file for run in runs if run.outcome == "oom"]
    return {name for name in named if named.count(name) >= LEAST_OOM}


def said_of(runs: Sequence[MeasuredRun], held: MemoryPosterior) -> Said:
    """Return what is said of some runs, given what others taught."""
    posterior = replace(nothing_measured(), held=held)
    parts: dict[int, list[int]] = {}
    for row, run in enumerate(runs):
        parts.setdefault(id(run.context), []).append(row)
    plain, moved, calibrated = (np.empty(len(runs)) for _ in range(3))
    by_share = np.empty((len(SHARES), len(runs)))
    for rows in parts.values():
        context, table = runs[rows[0]].context, table_of([runs[row].strategy for row in rows])
        known, memory = posterior.applied(context), context.cluster.device.memory_bytes
        plain[rows] = score(context, table).peak_memory_bytes / memory
        scores = score(known, table)
        assert scores.oom_risk is not None
        moved[rows], calibrated[rows] = scores.peak_memory_bytes / memory, scores.oom_risk
        for place, share in enumerate(SHARES):
            with patch.object(memory_risk, "PEAKS_SHARE", share):
                by_share[place, rows] = score(known, table).oom_risk
    near = (plain > NEAR[0]) & (plain < NEAR[1])
    return Said(
        ran_out=np.array([float(run.outcome == "oom") for run in runs])[near],
        generic=curve(plain, EVEN_SHARE, STEEPNESS)[near],
        moved=curve(moved, EVEN_SHARE, STEEPNESS)[near],
        calibrated=calibrated[near],
        by_share=by_share[:, near],
        table=np.array([run.file for run in runs], dtype=np.str_)[near],
    )


def joined(parts: Sequence[Said]) -> Said:
    """Return the runs of several draws and groups together."""
    rows = ("ran_out", "generic", "moved", "calibrated", "table")
    return Said(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in rows},
        by_share=np.concatenate([part.by_share for part in parts], axis=1),
    )


def markdown(said: Said) -> list[str]:
    """Return the losses of what was said, table by table, and how often it held."""
    tables = sorted(set(said.table))
    forms = {
        "published runs alone, catalogue's peak": said.generic,
        "the same curve at the calibrated peak": said.moved,
        "calibrated risk (in use)": said.calibrated,
    }
    for place, share in enumerate(SHARES):
        if share != PEAKS_SHARE:
            forms[f"with {share:.0%} of its variance for runs to take, not {PEAKS_SHARE:.0%}"] = said.by_share[place]
    lines = [
        f"What is said of {len(said.ran_out)} runs that were not drawn (three draws): mean negative logarithm of what "
        "was said of what happened, and mean square (Brier).",
        "",
        f"| | log loss | Brier | {' | '.join(f'log loss, {name}' for name in tables)} |",
        f"|---|---:|---:|{'---:|' * len(tables)}",
    ]
    for name, risk in forms.items():
        own = [f"{_loss(risk[said.table == one], said.ran_out[said.table == one]):.3f}" for one in tables]
        brier = float(np.mean((risk - said.ran_out) ** 2))
        lines.append(f"| {name} | {_loss(risk, said.ran_out):.3f} | {brier:.4f} | {' | '.join(own)} |")
    lines += ["", "| said | runs, generic | ran out | runs, calibrated | ran out |", "|---|---:|---:|---:|---:|"]
    for low, high in pairwise(EDGES):
        cells = []
        for risk in (said.generic, said.calibrated):
            here = (risk >= low) & (risk < high if high < 1 else risk <= 1)
            cells += [f"{here.sum()}", f"{said.ran_out[here].mean():.0%}" if here.any() else ""]
        lines.append(f"| {low:.0%} to {high:.0%} | {' | '.join(cells)} |")
    return lines


def _loss(risk: Floats, ran_out: Floats) -> float:
    sure = np.clip(risk, _CERTAIN, 1 - _CERTAIN)
    return float(-np.mean(np.log(np.where(ran_out > 0, sure, 1 - sure))))
