"""The fit of constants to measured runs, with a robust loss, and which of them the runs determine."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.calibration.constants import CONSTANTS, LARGEST_Z, NAMES, Constant, calibrated
from forerun.simulator.calibration.posterior import FREEDOM, Evidence, Posterior, known_covariance, slopes_of
from forerun.simulator.calibration.residual import USUAL, Settings, features_of, joined, residual_covariance
from forerun.simulator.score import score
from forerun.simulator.score_table import Floats
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy, table_of

SURE = 0.8
"""A constant counts as determined when its standard deviation falls to this share of the catalogue's."""
IDLE = 0.004
"""A constant that moves no run by this share of a step (at one standard deviation) is one that no run depends on."""
_ROUNDS, _REWEIGHTS = 5, 8
_NEAR = 0.1
"""Constants that moved by less (in standard deviations) leave slopes as they are."""
_CLOSE = 0.02
"""Largest change of a constant (in standard deviations) at which it counts as found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measured run. ``context`` is uncalibrated, and the same object for runs that differ in strategy only."""

    context: Context
    strategy: Strategy
    step_time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One constant: ``z`` and its standard deviation ``error`` (in those of the catalogue), 0 and 1 where ``refused``
    says why the runs do not determine it."""

    constant: Constant
    z: float
    error: float
    refused: str | None

    def factors(self, reach: float) -> tuple[float, float]:
        """Return the factor (or what is added) ``reach`` standard deviations below and above."""
        low, high = (max(-LARGEST_Z, min(LARGEST_Z, self.z + side * reach * self.error)) for side in (-1, 1))
        return self.constant.factor(low), self.constant.factor(high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Result: what to predict with, every constant, and the error (in logarithm) of every run when left out."""

    posterior: Posterior
    constants: tuple[Fitted, ...]
    before: Floats
    left_out: Floats
    left_out_spread: Floats
    """Standard deviation of the prediction of every run from the others, noise included."""


def fit(runs: Sequence[Measured], settings: Settings = USUAL) -> Fit:
    """Fit the constants of a machine to measured runs.

    First all constants are fitted; those whose uncertainty hardly falls are refused, with the reason, and the others
    are fitted again without them.

    Raises:
        RequestError: no run, or a run that cannot be scored.
    """
    if not runs:
        raise RequestError("calibration needs at least one measured run")
    every = np.ones(len(CONSTANTS), dtype=bool)
    evidence, z, deviations = _fitted(runs, every, np.zeros(len(CONSTANTS)), settings)
    refused = _refusals(evidence, deviations, settings)
    used = np.array([name not in refused for name in NAMES])
    evidence, z, deviations = _fitted(runs, used, np.where(used, z, 0.0), settings)
    known = {n: float(v) for n, v, u in zip(NAMES, z, used, strict=True) if u}
    posterior = Posterior(z=known, evidence=evidence, settings=settings)
    scale = np.sqrt(posterior.scale)
    constants = tuple(
        Fitted(
            constant=constant,
            z=float(z[place]) if used[place] else 0.0,
            error=float(min(deviations[place] * scale, 1.0)) if used[place] else 1.0,
            refused=refused.get(constant.name),
        )
        for place, constant in enumerate(CONSTANTS)
    )
    left_out, spread = _left_out(posterior)
    before = np.log([run.step_time_s for run in runs]) - _per_context(runs, _log_time)
    return Fit(posterior=posterior, constants=constants, before=before, left_out=left_out, left_out_spread=spread)


def _fitted(
    runs: Sequence[Measured], used: NDArray[np.bool_], z: Floats, settings: Settings
) -> tuple[Evidence, Floats, Floats]:
    """Return evidence at the fitted constants, the constants, and their standard deviations (Gauss-Newton from z)."""
    measured, weight = np.log([run.step_time_s for run in runs]), np.ones(len(runs))
    live: Collection[str] = NAMES
    kept: tuple[Floats, Floats] | None = None
    for turn in range(_ROUNDS):
        known = None if kept is None or np.abs(z - kept[0]).max() > _NEAR else kept[1]
        evidence = _evidence(runs, measured, z, weight, live, known)
        kept = kept if known is not None else (z, evidence.slopes)
        live = [name for name, slope in zip(NAMES, np.abs(evidence.slopes).max(axis=0), strict=True) if slope > 0]
        found, deviations, weight = _solved(evidence, used, settings)
        found = np.clip(found, -LARGEST_Z, LARGEST_Z)
        moved = float(np.abs(found - z).max())
        if turn == _ROUNDS - 1 or moved < _CLOSE:
            break
        z = found
    return replace(evidence, weight=weight), z, deviations


def _evidence(
    runs: Sequence[Measured],
    measured: Floats,
    z: Floats,
    weight: Floats,
    live: Collection[str],
    known: Floats | None,
) -> Evidence:
    """Return what the runs say, linearised at ``z``; ``known``: slopes that were taken close by."""
    at = dict(zip(NAMES, z, strict=True))
    slopes, log_time = np.empty((len(runs), len(CONSTANTS))), np.empty(len(runs))
    parts, order = [], []
    for rows in by_context(runs):
        context, table = calibrated(runs[rows[0]].context, at), table_of([runs[row].strategy for row in rows])
        scores = score(context, table)
        slopes[rows] = slopes_of(context, table, live) if known is None else known[rows]
        log_time[rows] = np.log(scores.step_time_s)
        parts.append(features_of(context, table, scores.time_s))
        order += rows
    features = joined(parts).take(np.argsort(order))
    return Evidence(features=features, slopes=slopes, error=measured - log_time + slopes @ z, weight=weight)


def _solved(evidence: Evidence, used: NDArray[np.bool_], settings: Settings) -> tuple[Floats, Floats, Floats]:
    """Return constants, their standard deviations and the weights of the runs, by reweighted least squares."""
    slopes = evidence.slopes[:, used]
    residual, noise = residual_covariance(evidence.features, evidence.features, settings), settings.noise
    prior, weight = slopes @ slopes.T + residual, evidence.weight
    for _ in range(_REWEIGHTS):
        whole = prior + np.diag(noise**2 / weight)
        solved = np.linalg.solve(whole, evidence.error)
        misses: Floats = evidence.error - prior @ solved
        weight = np.minimum(1.0, (FREEDOM + 1) / (FREEDOM + misses**2 / noise**2))
    z, deviations = np.zeros(len(used)), np.ones(len(used))
    z[used] = slopes.T @ solved
    explained = np.linalg.solve(whole, slopes)
    deviations[used] = np.sqrt(np.maximum(1.0 - np.einsum("nc,nc->c", slopes, explained), 1e-6))
    return z, deviations, weight


def _refusals(evidence: Evidence, deviations: Floats, settings: Settings) -> dict[str, str]:
    """Return why constants are not fitted, by name."""
    result: dict[str, str] = {}
    whole = known_covariance(evidence, np.ones(len(CONSTANTS), dtype=bool), settings)
    posterior = np.eye(len(CONSTANTS)) - evidence.slopes.T @ np.linalg.solve(whole, evidence.slopes)
    for place, constant in enumerate(CONSTANTS):
        effect = float(np.abs(evidence.slopes[:, place]).max())
        if deviations[place] <= SURE:
            continue
        if effect < IDLE:
            result[constant.name] = f"no run depends on it (moves a step by {effect:.1%} at most)"
            continue
        alone = known_covariance(evidence, np.arange(len(CONSTANTS)) == place, settings)
        column = evidence.slopes[:, place]
        certain = math.sqrt(max(1.0 - float(column @ np.linalg.solve(alone, column)), 0.0))
        shared = posterior[place] / np.sqrt(posterior[place, place] * np.diag(posterior))
        shared[place] = 0.0
        other = int(np.abs(shared).argmax())
        if certain <= SURE and abs(shared[other]) > 0.3:
            result[constant.name] = (
                f"cannot be told apart from {CONSTANTS[other].name} (correlation {shared[other]:.2f})"
            )
        else:
            result[constant.name] = f"the runs leave {deviations[place]:.0%} of the catalogue's uncertainty"
    return result


def _left_out(posterior: Posterior) -> tuple[Floats, Floats]:
    """Return error and standard deviation of every run when predicted from all others (closed form; Rasmussen and
    Williams 2006, section 5.4.2). Slopes and weights stay where the whole fit has them."""
    evidence = posterior.evidence
    used = np.array([name in posterior.z for name in NAMES])
    even = replace(evidence, weight=np.ones(len(evidence)))
    inverse, whole = (np.linalg.inv(known_covariance(one, used, posterior.settings)) for one in (even, evidence))
    weighted = (whole @ evidence.error) / np.diag(whole)
    return weighted, np.sqrt(posterior.scale / np.diag(inverse))


def by_context(runs: Sequence[Measured]) -> list[list[int]]:
    """Return the row numbers of runs that share a context, in order of first appearance."""
    groups: dict[int, list[int]] = {}
    for row, run in enumerate(runs):
        groups.setdefault(id(run.context), []).append(row)
    return list(groups.values())


def _per_context(runs: Sequence[Measured], function: Callable[[Context, list[Strategy]], Floats]) -> Floats:
    """Return one number per run."""
    result = np.empty(len(runs))
    for rows in by_context(runs):
        result[rows] = function(runs[rows[0]].context, [runs[row].strategy for row in rows])
    return result


def _log_time(context: Context, strategies: list[Strategy]) -> Floats:
    return np.log(score(context, table_of(strategies)).step_time_s)
