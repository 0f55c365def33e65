"""Fit of peak memory to runs: factors on its parts, a residual of similar strategies, and an interval.

As for time, the logarithm of measured over predicted memory is Gaussian, along factors on parts of the peak (with
priors around the catalogue's 1) and a residual of similar strategies. There are three kinds of measurements; allocated
bytes do not include fragmentation, and only the device's total includes memory outside the allocator. Runs with and
without OOM bound the device's peak from one side (``censored``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.assignment.memory import memory_by_stage
from forerun.simulator.calibration.censored import observations
from forerun.simulator.calibration.evidence import DOUBT, FREEDOM, Evidence, known_covariance
from forerun.simulator.calibration.memory_factors import (
    FACTOR_NAMES,
    FACTORS,
    LIVE,
    MemoryFactor,
    counted,
    factor_values,
    held_bytes,
    idle_bytes,
    log_kind,
    memory_features,
    memory_slopes,
)
from forerun.simulator.calibration.memory_posterior import MemoryPosterior
from forerun.simulator.calibration.residual import USUAL, ErrorPriors, Features, joined, residual_covariance
from forerun.simulator.core.score import score
from forerun.simulator.score_table import Floats
from forerun.spaces.strategies import Context, Strategy, StrategyTable, by_context, table_of

KINDS = ("allocated", "reserved", "device")
"""Kinds of measured peaks: live tensors, memory reserved by the allocator, or all memory in use on the device."""
SURE = 0.8
"""A factor counts as determined when its standard deviation falls to this share of the catalogue's."""
LARGEST_Z = 4.0
_NINETY = 1.645
_ROUNDS, _REWEIGHTS = 4, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRun:
    """One run. ``peak_bytes``: its peak, of ``kind`` (``KINDS``); None where only its outcome ``fitted`` is known.

    ``of_first``: the peak is of the first stage instead of the fullest. ``context`` is uncalibrated, and the same
    object for runs that differ only in strategy.
    """

    context: Context
    strategy: Strategy
    peak_bytes: float | None
    kind: str
    fitted: bool
    of_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedFactor:
    """One factor: ``z`` and its standard deviation; 0 and 1 where the runs do not determine it."""

    factor: MemoryFactor
    z: float
    error: float
    determined: bool

    @property
    def between(self) -> tuple[float, float]:
        """Bounds that contain the factor with 90 % probability."""
        low, high = (max(-LARGEST_Z, min(LARGEST_Z, self.z + side * _NINETY * self.error)) for side in (-1, 1))
        return self.factor.factor(low), self.factor.factor(high)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """Result of a fit. Errors are logarithms of measured over predicted memory, NaN for runs with only a label.

    ``before`` the fit, and ``left_out`` when predicted from all other runs, with its standard deviation.

    ``margin_before`` and ``margin_left_out``: logarithm of the device's memory over the predicted peak, negative for a
    run predicted not to fit.
    """

    posterior: MemoryPosterior
    factors: tuple[FittedFactor, ...]
    before: Floats
    left_out: Floats
    left_out_spread: Floats
    margin_before: Floats
    margin_left_out: Floats


def fit_memory(runs: Sequence[MemoryRun], settings: ErrorPriors = USUAL) -> MemoryFit | None:
    """Fit the factors to measured peaks and to labels; None without runs."""
    if not runs:
        return None
    held, idle, features = _predicted(runs)
    kinds = np.array([run.kind if run.peak_bytes is not None else "device" for run in runs])
    limit = np.array([run.context.cluster.device.memory_bytes for run in runs])
    # Failure is determined by memory that cannot be freed.
    held[:, LIVE] -= np.where([run.peak_bytes is None for run in runs], idle, 0.0)
    idle = np.where([run.peak_bytes is None for run in runs], 0.0, idle)
    side = np.array([0 if run.peak_bytes is not None else -1 if run.fitted else 1 for run in runs], dtype=np.int8)
    log_peaks = np.log([run.peak_bytes or bound for run, bound in zip(runs, limit, strict=True)])
    used = np.ones(len(FACTORS), dtype=bool)
    evidence, z, deviations = _solved(held, features, kinds, log_peaks, side, used, settings)
    used = deviations <= SURE
    evidence, z, deviations = _solved(held, features, kinds, log_peaks, side, used, settings)
    measured = side == 0
    scale = _scale(evidence, measured, settings)
    factors = {name: float(value) for name, value, is_used in zip(FACTOR_NAMES, z, used, strict=True) if is_used}
    left_out, spread = _left_out(evidence, used, settings)
    needed = np.log(held.sum(axis=1) - idle)
    # A label is left out like a measurement, with its equivalent observation.
    at = log_kind(held * factor_values(factors), kinds) - evidence.slopes @ np.where(used, z, 0.0)
    predicted = at + evidence.error - left_out
    return MemoryFit(
        posterior=MemoryPosterior(z=factors, evidence=evidence, scale=scale, settings=settings),
        factors=tuple(
            FittedFactor(
                factor=factor,
                z=float(z[place]) if used[place] else 0.0,
                error=float(deviations[place]) if used[place] else 1.0,
                determined=bool(used[place]),
            )
            for place, factor in enumerate(FACTORS)
        ),
        before=np.where(measured, log_peaks - log_kind(held, kinds), np.nan),
        left_out=np.where(measured, left_out, np.nan),
        left_out_spread=np.sqrt(scale) * spread,
        margin_before=np.log(limit) - needed,
        margin_left_out=np.log(limit) - _needed(predicted, held, idle, kinds, factors),
    )


def _predicted(runs: Sequence[MemoryRun]) -> tuple[Floats, Floats, Features]:
    """Return the catalogue's prediction of the runs' peaks, their idle part, and their features."""
    held, idle, parts, order = np.empty((len(runs), len(FACTORS))), np.empty(len(runs)), [], []
    for rows in by_context(runs):
        context, table = runs[rows[0]].context, table_of([runs[row].strategy for row in rows])
        memory_bytes = _measured_bytes(context, table, [runs[row] for row in rows])
        held[rows], idle[rows] = held_bytes(context, memory_bytes), idle_bytes(context, memory_bytes)
        parts.append(memory_features(context, table, held[rows]))
        order += rows
    return held, idle, joined(parts).take(np.argsort(order))


def _measured_bytes(context: Context, table: StrategyTable, runs: Sequence[MemoryRun]) -> Mapping[str, Floats]:
    """Return the predicted parts of the peak of every run, on the measured stage."""
    scores = score(context, table)
    memory_bytes = {part: values.copy() for part, values in scores.memory_bytes.items()}
    for row, run in enumerate(runs):
        if run.of_first and run.peak_bytes is not None and scores.peak_stage[row] > 0:
            for part, value in memory_by_stage(context, run.strategy)[0].items():
                memory_bytes[part][row] = value
    return memory_bytes


def _solved(
    held: Floats,
    features: Features,
    kinds: NDArray[np.str_],
    log_peaks: Floats,
    side: NDArray[np.int8],
    used: NDArray[np.bool_],
    settings: ErrorPriors,
) -> tuple[Evidence, Floats, Floats]:
    """Return evidence, factors and their standard deviations (Gauss-Newton, reweighted; labels as observations)."""
    residual, noise = residual_covariance(features, features, settings), settings.noise
    z, weight = np.zeros(len(FACTORS)), np.ones(len(log_peaks))
    for _ in range(_ROUNDS):
        at = held * np.exp(np.array([factor.spread for factor in FACTORS]) * z)
        slopes = memory_slopes(at, kinds)
        error = log_peaks - log_kind(at, kinds) + slopes @ z
        used_slopes = slopes[:, used]
        prior = used_slopes @ used_slopes.T + residual
        for _ in range(_REWEIGHTS):
            seen, weight = observations(prior, error, side, noise, np.where(side == 0, weight, 1.0))
            covariance = prior + np.diag(noise**2 / weight)
            solved = np.linalg.solve(covariance, seen)
            misses = seen - prior @ solved
            robust = np.minimum(1.0, (FREEDOM + 1) / (FREEDOM + misses**2 / noise**2))
            weight = np.where(side == 0, robust, weight)
        z = np.zeros(len(FACTORS))
        z[used] = np.clip(used_slopes.T @ solved, -LARGEST_Z, LARGEST_Z)
    deviations = np.ones(len(FACTORS))
    explained = np.linalg.solve(covariance, used_slopes)
    deviations[used] = np.sqrt(np.maximum(1.0 - np.einsum("nc,nc->c", used_slopes, explained), 1e-6))
    return Evidence(features=features, slopes=slopes, error=seen, weight=weight), z, deviations


def _scale(evidence: Evidence, measured: NDArray[np.bool_], settings: ErrorPriors) -> float:
    """Return the variance of the errors of measured peaks relative to the expected one."""
    if not measured.any():
        return 1.0
    every = np.ones(len(FACTORS), dtype=bool)
    known = known_covariance(evidence, every, settings)[np.ix_(measured, measured)]
    error = evidence.error[measured]
    return float((DOUBT + error @ np.linalg.solve(known, error)) / (DOUBT + len(error)))


def _left_out(evidence: Evidence, used: NDArray[np.bool_], settings: ErrorPriors) -> tuple[Floats, Floats]:
    """Return error and standard deviation of every observation when predicted from all others."""
    even = replace(evidence, weight=np.ones(len(evidence)))
    inverse, whole = (np.linalg.inv(known_covariance(one, used, settings)) for one in (even, evidence))
    return (whole @ evidence.error) / np.diag(whole), np.sqrt(1.0 / np.diag(inverse))


def _needed(predicted: Floats, held: Floats, idle: Floats, kinds: NDArray[np.str_], z: Mapping[str, float]) -> Floats:
    """Return the log of the device's required memory from that of a peak of some kind.

    Parts outside the kind are added, idle parts subtracted.
    """
    at, known = held * factor_values(z), counted(kinds)
    more = (at * (1.0 - known)).sum(axis=1) - idle * factor_values(z)[LIVE]
    return np.asarray(np.log(np.maximum(np.exp(predicted) + more, 1.0)))
