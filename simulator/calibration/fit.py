"""Fit of constants to measured runs with a robust loss, and selection of the determined ones.

Every measured run is also predicted from the others, without another fit. Each prior has a closed form (Rasmussen and
Williams 2006, section 5.4.2); the priors' shares are those given by the other runs alone. Slopes and weights are those
of the fit to all runs.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.calibration.belief import LEVEL, Components
from forerun.simulator.calibration.constants import CONSTANTS, LARGEST_Z, NAMES, Constant, calibrated
from forerun.simulator.calibration.evidence import Evidence, known_covariance, slopes_of
from forerun.simulator.calibration.mixture import (
    PRIORS,
    WIDE,
    Covariances,
    Prior,
    PriorMixture,
    shares_of,
    student_density,
    weighed,
)
from forerun.simulator.calibration.posterior import Posterior
from forerun.simulator.calibration.residual import USUAL, ErrorPriors, features_of, joined
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.table import AnySplit
from forerun.simulator.score_table import Floats
from forerun.simulator.scoring import score, table_for
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy, by_context


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Logs of measured over predicted time, shape N.

    ``error``, and the bounds ``low`` and ``high`` of its expected interval of probability ``LEVEL``.
    """

    error: Floats
    low: Floats
    high: Floats

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Mark the runs within the interval predicted from the others."""
        return np.asarray((self.low <= self.error) & (self.error <= self.high))


def left_out(evidence: Evidence, mixture: PriorMixture, used: NDArray[np.bool_], settings: ErrorPriors) -> LeftOut:
    """Return the error of every run when predicted from all others, along the ``used`` constants."""
    used_covariances, every = (Covariances.of(evidence, which, settings) for which in (used, np.ones_like(used)))
    error, (errors, spreads, densities) = evidence.error, np.empty((3, *mixture.weight.shape))
    for place, (prior, weight) in enumerate(zip(mixture.priors, mixture.weight, strict=True)):
        alone = np.linalg.inv(used_covariances.known(prior, weight))
        errors[place] = (alone @ error) / np.diag(alone)
        covariance = every.known(prior, weight)
        inverse = np.linalg.inv(covariance)
        variance = 1.0 / np.diag(inverse)
        # The run itself counts as unseen, with the usual noise.
        noise = (prior.noise * settings.noise) ** 2
        spreads[place] = np.sqrt(mixture.scale[place] * np.maximum(variance - noise / weight + noise, noise))
        size = error @ inverse @ error - (inverse @ error) ** 2 * variance
        log_determinant = np.linalg.slogdet(covariance)[1] - np.log(variance)
        densities[place] = student_density(size, log_determinant, len(error) - 1)
    shares = shares_of(densities)
    middle = (shares * errors).sum(axis=0)
    # A prior's prediction is above the mixture's mean by the amount that its error is below the mixture's.
    parts = Components(shares=shares, offset=middle - errors, spread=spreads)
    return LeftOut(error=middle, low=parts.quantile((1 - LEVEL) / 2), high=parts.quantile((1 + LEVEL) / 2))


SURE = 0.8
"""A constant counts as determined when its standard deviation falls to this share of the catalogue's."""
IDLE = 0.004
"""A constant that changes no run by this share of a step (at one standard deviation) has no dependent run."""
_ROUNDS = 5
_STRAIGHT = 0.002
"""Slopes that predict all steps of a request within this share are not computed again."""
_CLOSE = 0.02
"""Largest change of a constant (in standard deviations) at convergence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedRun:
    """One measured run.

    ``context`` is uncalibrated, and the same object for runs that differ only in strategy; for an operator graph the
    strategy is a split.
    """

    context: Context | GraphContext
    strategy: Strategy | AnySplit
    step_time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slopes:
    """Slopes of runs [N, C], and the log step times ``log_time`` at the constants ``z`` [N, C] of the slopes."""

    z: Floats
    log_time: Floats
    slopes: Floats

    def hold(self, rows: Sequence[int], z: Floats, log_time: Floats) -> bool:
        """Check whether the slopes are valid for some runs at ``z``."""
        predicted = self.log_time[rows] + ((z - self.z[rows]) * self.slopes[rows]).sum(axis=1)
        return bool(np.abs(predicted - log_time).max() <= _STRAIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedConstant:
    """One constant: ``z`` and its standard deviation ``error`` (in units of the catalogue's).

    ``z`` and ``error`` are 0 and 1 where ``refused`` explains why the runs do not determine it.
    """

    constant: Constant
    z: float
    error: float
    refused: str | None

    def factors(self, reach: float) -> tuple[float, float]:
        """Return the factor (or addend) ``reach`` standard deviations below and above."""
        low, high = (max(-LARGEST_Z, min(LARGEST_Z, self.z + side * reach * self.error)) for side in (-1, 1))
        return self.constant.factor(low), self.constant.factor(high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Result of a fit: the posterior, every constant of such models, and the errors of all runs.

    Errors are logarithms of measured over predicted time, ``before`` the fit and when ``left_out``.
    """

    posterior: Posterior
    constants: tuple[FittedConstant, ...]
    before: Floats
    left_out: LeftOut


def fit(
    runs: Sequence[FittedRun], settings: ErrorPriors = USUAL, turned: Callable[[int, int], None] | None = None
) -> Fit:
    """Fit the constants of a machine to measured runs.

    First all constants are fitted within their priors; constants whose uncertainty hardly falls are refused, with the
    reason. The determined constants are fitted again, under all priors. ``turned`` is called with (finished rounds,
    maximum rounds) before each round.

    Raises:
        RequestError: there are no runs, or a run cannot be scored.
    """
    if not runs:
        raise RequestError("calibration needs at least one measured run")
    every = np.ones(len(CONSTANTS), dtype=bool)

    def turning(before: int) -> Callable[[int], None]:
        return lambda turn: None if turned is None else turned(before + turn, 2 * _ROUNDS)

    evidence, mixture, z, known = _fitted(runs, every, np.zeros(len(CONSTANTS)), settings, (WIDE,), turning(0))
    refused = _refusals(evidence, _deviations(evidence, mixture, every, settings, scaled=False), settings)
    used = np.array([name not in refused for name in NAMES])
    start = np.where(used, z, 0.0)
    evidence, mixture, z, _ = _fitted(runs, used, start, settings, PRIORS, turning(_ROUNDS), known)
    deviations = _deviations(evidence, mixture, used, settings)
    moved = {n: float(v) for n, v, u in zip(NAMES, z, used, strict=True) if u}
    constants = tuple(
        FittedConstant(
            constant=constant,
            z=float(z[place]) if used[place] else 0.0,
            error=float(min(deviations[place], 1.0)) if used[place] else 1.0,
            refused=refused.get(constant.name),
        )
        for place, constant in enumerate(CONSTANTS)
        if constant.acts_on(runs[0].context)
    )
    return Fit(
        posterior=Posterior(z=moved, evidence=evidence, mixture=mixture, settings=settings),
        constants=constants,
        before=np.log([run.step_time_s for run in runs]) - _log_times(runs),
        left_out=left_out(evidence, mixture, used, settings),
    )


def _fitted(
    runs: Sequence[FittedRun],
    used: NDArray[np.bool_],
    z: Floats,
    settings: ErrorPriors,
    priors: Sequence[Prior],
    turning: Callable[[int], None],
    known: _Slopes | None = None,
) -> tuple[Evidence, PriorMixture, Floats, _Slopes]:
    """Return evidence at the fitted constants, weighed priors, constants (Gauss-Newton from ``z``) and last slopes.

    ``known``: slopes for the first iteration, if any.
    """
    measured, weight = np.log([run.step_time_s for run in runs]), np.ones((len(priors), len(runs)))
    turn = 0
    while True:
        turning(turn)
        evidence, known = _evidence(runs, measured, z, known)
        mixture = weighed(evidence, used, settings, priors, weight)
        constants = np.clip(mixture.shares @ mixture.constants(evidence, used), -LARGEST_Z, LARGEST_Z)
        moved = float(np.abs(constants - z).max())
        turn += 1
        if turn == _ROUNDS or moved < _CLOSE:
            return replace(evidence, weight=mixture.shares @ mixture.weight), mixture, z, known
        z, weight = constants, mixture.weight


def _evidence(
    runs: Sequence[FittedRun], measured: Floats, z: Floats, known: _Slopes | None
) -> tuple[Evidence, _Slopes]:
    """Return the evidence of the runs, linearised at ``z``, and the slopes: ``known`` if valid, otherwise new ones."""
    at = dict(zip(NAMES, z, strict=True))
    slopes, log_time = np.empty((len(runs), len(CONSTANTS))), np.empty(len(runs))
    taken_z, taken_log_time = np.tile(z, (len(runs), 1)), np.empty(len(runs))
    parts, order = [], []
    live = NAMES if known is None else _live(known.slopes)
    for rows in by_context(runs):
        context = calibrated(runs[rows[0]].context, at)
        table = table_for(context, [runs[row].strategy for row in rows])
        scores = score(context, table)
        log_time[rows] = taken_log_time[rows] = np.log(scores.step_time_s)
        if known is not None and known.hold(rows, z, log_time[rows]):
            slopes[rows], taken_z[rows] = known.slopes[rows], known.z[rows]
            taken_log_time[rows] = known.log_time[rows]
        else:
            slopes[rows] = slopes_of(context, table, live)
        parts.append(features_of(context, table, scores.time_s))
        order += rows
    features = joined(parts).take(np.argsort(order))
    error = measured - log_time + slopes @ z
    evidence = Evidence(features=features, slopes=slopes, error=error, weight=np.ones(len(runs)))
    return evidence, _Slopes(z=taken_z, log_time=taken_log_time, slopes=slopes)


def _live(slopes: Floats) -> Collection[str]:
    """Return the constants on which some run depends."""
    return [name for name, slope in zip(NAMES, np.abs(slopes).max(axis=0), strict=True) if slope > 0]


def _deviations(
    evidence: Evidence, mixture: PriorMixture, used: NDArray[np.bool_], settings: ErrorPriors, *, scaled: bool = True
) -> Floats:
    """Return each constant's deviation in the catalogue's units; ``scaled``: with the scale of the runs' errors."""
    covariances, middle = Covariances.of(evidence, used, settings), mixture.constants(evidence, used)
    variance, slopes = np.zeros(len(used)), evidence.slopes
    for prior, share, weight, scale, z in zip(
        mixture.priors, mixture.shares, mixture.weight, mixture.scale, middle, strict=True
    ):
        explained = np.einsum("nc,nc->c", slopes, np.linalg.solve(covariances.known(prior, weight), slopes))
        left = prior.constants**2 * np.maximum(1.0 - prior.constants**2 * explained, 1e-6)
        variance += share * ((scale if scaled else 1.0) * left + (z - mixture.shares @ middle) ** 2)
    return np.where(used, np.sqrt(variance), 1.0)


def _refusals(evidence: Evidence, deviations: Floats, settings: ErrorPriors) -> dict[str, str]:
    """Return the reasons why constants are not fitted, by name."""
    result: dict[str, str] = {}
    covariance = known_covariance(evidence, np.ones(len(CONSTANTS), dtype=bool), settings)
    posterior = np.eye(len(CONSTANTS)) - evidence.slopes.T @ np.linalg.solve(covariance, evidence.slopes)
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
                f"cannot be distinguished from {CONSTANTS[other].name} (correlation {shared[other]:.2f})"
            )
        else:
            result[constant.name] = f"the runs leave {deviations[place]:.0%} of the catalogue's uncertainty"
    return result


def _log_times(runs: Sequence[FittedRun]) -> Floats:
    """Return the log of every run's predicted step time."""
    result = np.empty(len(runs))
    for rows in by_context(runs):
        context = runs[rows[0]].context
        result[rows] = np.log(score(context, table_for(context, [runs[row].strategy for row in rows])).step_time_s)
    return result
