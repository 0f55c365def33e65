"""Refit of constants on some runs, and the error of the result on others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from constants import Constant, Factors, patched, varied
from numpy.typing import NDArray
from scipy.optimize import least_squares

from forerun.search.measured.validate import Predictions, predict
from forerun.search.measured.validate.metrics import memory_error
from forerun.simulator import score
from forerun.spaces.strategies import Context, StrategyTable, table_of

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

SCALE = 0.1
"""Errors beyond this (in logarithm) count less than with the square: layouts that no constant can explain."""
PRIOR = 0.01
"""Pull towards the present value, so that a constant which no row depends on stays where it is."""
EVALUATIONS = 5
FACTORS = (0.4, 0.7, 0.9, 1.0, 1.12, 1.4, 2.0, 4.0)
"""Factors between which the effect of a single constant is interpolated."""
MEMORY_FACTORS = (0.5, 0.75, 1.0, 1.33, 2.0)
COARSE_FACTORS = (0.6, 1.0, 1.6)
"""Grid on which constants of memory are tried (verdicts have no slope); the coarse one from three constants on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Runs, as jobs of the scorer: each context with its strategies and their rows in ``base``."""

    base: Predictions
    jobs: tuple[tuple[Context, StrategyTable, Rows], ...]
    rows: Rows
    constants: tuple[Constant, ...]
    weights: Floats
    """Of every row of ``rows``."""
    effects: Mapping[Constant, tuple[Floats, Floats]]
    """Factors [F] and the step times with them [F, N], of constants whose effects add up; none: always scored anew."""


def problem(
    base: Predictions, rows: Sequence[int], constants: tuple[Constant, ...], *, even: bool, joint: bool
) -> Problem:
    """Return the refit of ``constants`` on some rows. ``even``: every table of results weighs the same; ``joint``: the
    effects of the constants cannot be added."""
    jobs: dict[int, list[int]] = {}
    for row in rows:
        jobs.setdefault(id(base.runs[row].context), []).append(row)
    names = [base.runs[row].file for row in rows]
    weights = np.array([1.0 / np.sqrt(names.count(name)) if even else 1.0 for name in names])
    known = Problem(
        base=base,
        jobs=tuple(
            (base.runs[members[0]].context, table_of([base.runs[row].strategy for row in members]), np.array(members))
            for members in jobs.values()
        ),
        rows=np.array(rows, dtype=np.intp),
        constants=tuple(c for c in constants if c.exists and any(c.value(base.runs[row]) > 0 for row in rows)),
        weights=weights / weights.mean(),
        effects={},
    )
    return known if joint else replace(known, effects={c: _effect(known, c) for c in known.constants})


def _effect(known: Problem, constant: Constant) -> tuple[Floats, Floats]:
    """Return the step times of all rows with one constant multiplied by each of the factors it may take."""
    least, most = constant.limits(_typical(known, constant))
    factors = np.array(sorted({least, most, *(factor for factor in FACTORS if least < factor < most)}))
    return factors, np.stack([times(known, {constant: factor}, known.rows) for factor in factors])


def times(known: Problem, factors: Factors, rows: Rows) -> Floats:
    """Return the step times of all runs with the constants multiplied; those outside ``rows`` are as in ``base``."""
    if known.effects:
        return _added(known, factors)
    result, wanted = known.base.step_time_s.copy(), np.zeros(len(known.base.runs), dtype=bool)
    wanted[rows] = True
    with patched(factors):
        for context, table, members in known.jobs:
            if wanted[members].any():
                result[members] = score(_context(context, factors), table).step_time_s
    return result


def _added(known: Problem, factors: Factors) -> Floats:
    """Return step times with the effects of single constants added, each interpolated between its factors."""
    total = known.base.step_time_s.copy()
    for constant, factor in factors.items():
        nodes, step_time_s = known.effects[constant]
        above = int(np.clip(np.searchsorted(nodes, factor), 1, len(nodes) - 1))
        share = (factor - nodes[above - 1]) / (nodes[above] - nodes[above - 1])
        total += step_time_s[above - 1] * (1 - share) + step_time_s[above] * share - known.base.step_time_s
    return total


def fitted(known: Problem, rows: Rows) -> dict[Constant, float]:
    """Return the factors that fit the step times of ``rows`` best (soft L1 of the logarithm of the ratio)."""
    measured = np.array([known.base.runs[row].step_time_s for row in rows], dtype=float)
    weight = known.weights[np.searchsorted(known.rows, rows)]
    present = [_typical(known, constant) for constant in known.constants]
    limits = np.log([c.limits(value) for c, value in zip(known.constants, present, strict=True)])

    def residuals(x: Floats) -> Floats:
        ratio = times(known, dict(zip(known.constants, np.exp(x), strict=True)), rows)[rows] / measured
        return np.concatenate([weight * np.log(ratio), PRIOR * np.sqrt(len(rows)) * x])

    start = np.clip(np.zeros(len(known.constants)), limits[:, 0] + 1e-9, limits[:, 1] - 1e-9)
    result = least_squares(
        residuals,
        start,
        bounds=(limits[:, 0], limits[:, 1]),
        loss="soft_l1",
        f_scale=SCALE,
        diff_step=0.03,
        x_scale=0.3,
        max_nfev=EVALUATIONS,
    )
    return dict(zip(known.constants, np.exp(result.x).tolist(), strict=True))


def present_values(known: Problem) -> dict[Constant, float]:
    """Return what the constants are now."""
    return {constant: _typical(known, constant) for constant in known.constants}


def _typical(known: Problem, constant: Constant) -> float:
    """Return the median over the runs that have the constant at all."""
    values = [constant.value(known.base.runs[row]) for row in known.rows]
    return float(np.median([value for value in values if value > 0]))


def _context(context: Context, factors: Factors) -> Context:
    return varied(context, factors)


def memory_trials(known: Problem) -> list[tuple[dict[Constant, float], Predictions]]:
    """Return the predictions of every point of a grid of factors, the present values first."""
    factors = MEMORY_FACTORS if len(known.constants) < 3 else COARSE_FACTORS
    grids = np.meshgrid(*[factors for _ in known.constants])
    points = [dict(zip(known.constants, point, strict=True)) for point in zip(*(g.ravel() for g in grids), strict=True)]
    points.sort(key=lambda point: sum(abs(np.log(factor)) for factor in point.values()))
    return [(point, _memory(known, point)) for point in points]


def _memory(known: Problem, factors: Factors) -> Predictions:
    """Return the memory of all runs of a problem with the constants multiplied; other runs are as in ``base``."""
    runs = list(known.base.runs)
    profiles: dict[int, Context] = {}
    for row in known.rows:
        context = runs[row].context
        changed = profiles.setdefault(id(context), _context(context, factors))
        runs[row] = replace(runs[row], context=changed)
    found = predict([runs[row] for row in known.rows])
    memory, oom = known.base.comparable_memory_bytes.copy(), known.base.oom.copy()
    memory[known.rows], oom[known.rows] = found.comparable_memory_bytes, found.oom
    return replace(known.base, comparable_memory_bytes=memory, oom=oom)


def best_memory(trials: Sequence[tuple[dict[Constant, float], Predictions]], rows: Rows) -> int:
    """Return the trial with the least ``memory_loss``; the first of equals."""
    return int(np.argmin([memory_loss(predictions, rows) for _, predictions in trials]))


def memory_loss(predictions: Predictions, rows: Rows) -> float:
    """Return the mean share of wrong verdicts plus the median error of the measured peaks."""
    outcome = np.array([predictions.runs[row].outcome for row in rows])
    oom = predictions.oom[rows]
    wrong = [np.mean(~oom[outcome == "oom"]), np.mean(oom[outcome == "ok"])] if "oom" in outcome else [0.0]
    error = memory_error(predictions, rows[outcome == "ok"])
    error = np.abs(error[np.isfinite(error)])
    return float(np.mean(wrong)) + (float(np.median(error)) if len(error) else 0.0)
