"""Peak memory, fitted to what runs used: a few factors on its parts, what alike strategies share, and an interval.

The same way as for time: the logarithm of measured over predicted memory is Gaussian, along factors on parts of the
peak (with priors around the catalogue's 1) and a residual of alike strategies. Measurements come in three kinds; what
the allocator had allocated knows nothing of fragmentation, and only whole devices know of what lies outside the
allocator. Runs that ran out of memory, and those that did not, bound the device's peak from one side (``censored``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from forerun.simulator.calibration.belief import quantile
from forerun.simulator.calibration.censored import observations
from forerun.simulator.calibration.evidence import DOUBT, FEW, FREEDOM, Evidence, known_covariance
from forerun.simulator.calibration.memory_factors import FACTOR_NAMES, FACTORS, MemoryFactor
from forerun.simulator.calibration.residual import USUAL, Features, Settings, joined, placed, residual_covariance
from forerun.simulator.score import score
from forerun.simulator.score_table import MEMORY_PARTS, Floats
from forerun.spaces.strategies import Context, Strategy, StrategyTable, table_of

KINDS = ("allocated", "reserved", "device")
"""What a peak may be of: live tensors, what the allocator holds, or all that the device has in use."""
SURE = 0.8
"""A factor counts as determined when its standard deviation falls to this share of the catalogue's."""
LARGEST_Z = 4.0
_NINETY = 1.645
_ROUNDS, _REWEIGHTS = 4, 3
_INSIDE, _LIVE = 5, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRun:
    """One run. ``peak_bytes``: its peak, of ``kind`` (``KINDS``); None where only ``fitted`` is known, which says
    whether it ran. ``context`` is uncalibrated, and the same object for runs that differ in strategy only."""

    context: Context
    strategy: Strategy
    peak_bytes: float | None
    kind: str
    fitted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBounds:
    """How sure the peaks of N strategies are: ``reach``, the factor by which they may be larger, or smaller, and
    ``needed_bytes``, what of a peak the device must have (idle buffers are given back before anything fails).

    ``oom_risk``: probability that this is more than the device has.
    """

    reach: Floats
    needed_bytes: Floats
    oom_risk: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPosterior:
    """What runs have taught of memory. ``z`` by name (those that the runs determine), ``scale``: variance of the errors
    over what was thought of them before."""

    z: Mapping[str, float]
    evidence: Evidence
    scale: float
    settings: Settings = USUAL

    def applied(self, context: Context) -> Context:
        """Return the context with what lies outside the allocator as it was fitted."""
        profile, factor = context.framework, _factors(self.z)[-1]
        if factor == 1.0:
            return context
        framework = replace(
            profile,
            context_bytes=profile.context_bytes * factor,
            communicator_bytes=profile.communicator_bytes * factor,
        )
        return replace(context, framework=framework)

    def memory_bytes(
        self, context: Context, table: StrategyTable, memory_bytes: Mapping[str, Floats]
    ) -> dict[str, Floats]:
        """Return the parts of the peak of every row; ``context`` was ``applied``."""
        parts, lost, idle = self._parts(context, table, memory_bytes)
        outside = context.framework.context_bytes + context.framework.communicator_bytes
        live = sum(parts.values(), np.zeros(len(table)))
        # As in the catalogue's prediction: idle buffers are given back before an allocation fails.
        room = np.maximum(context.cluster.device.memory_bytes - live - lost - outside, 0.0)
        whole = {**parts, "reserve": lost + np.minimum(idle, room) + outside}
        return {part: whole[part] for part in MEMORY_PARTS}

    def bounds(self, context: Context, table: StrategyTable, level: float) -> "MemoryBounds":
        """Return how sure the peaks of all rows are; ``context`` was ``applied``."""
        bare = replace(context, correction=None)
        memory_bytes = score(bare, table).memory_bytes
        held = held_bytes(bare, memory_bytes)
        features = memory_features(bare, table, held)
        slopes = _slopes(held * _factors(self.z), np.array(["device"] * len(table)))
        cross = slopes @ self.evidence.slopes.T + residual_covariance(features, self.evidence.features, self.settings)
        every = np.ones(len(FACTORS), dtype=bool)
        known = known_covariance(self.evidence, every, self.settings)
        variance = (slopes**2).sum(axis=1) + residual_covariance(features, features, self.settings).diagonal()
        variance = variance - np.einsum("nm,nm->n", cross, np.linalg.solve(known, cross.T).T)
        spread = np.sqrt(self.scale * (np.maximum(variance, 0.0) + self.settings.noise**2))
        parts, lost, _ = self._parts(bare, table, memory_bytes)
        needed = sum(parts.values(), lost + held[:, _INSIDE])
        return MemoryBounds(
            reach=np.exp(quantile(level) * spread),
            needed_bytes=needed,
            oom_risk=student(FREEDOM).sf(np.log(context.cluster.device.memory_bytes / needed) / spread),
        )

    def _parts(
        self, context: Context, table: StrategyTable, memory_bytes: Mapping[str, Floats]
    ) -> tuple[dict[str, Floats], Floats, Floats]:
        """Return the parts of live tensors, what the allocator loses for good, and what it keeps idle."""
        held, factors, explained = held_bytes(context, memory_bytes), _factors(self.z), self._explained()
        own = np.ones(len(table))
        for start in range(0, len(table), FEW):
            rows = slice(start, start + FEW)
            features = memory_features(context, table.take(rows), held[rows])
            own[rows] = np.exp(residual_covariance(features, self.evidence.features, self.settings) @ explained)
        parts = {
            part: memory_bytes[part] * own * factors[place]
            for place, factor in enumerate(FACTORS)
            for part in factor.parts
        }
        idle = idle_bytes(context, memory_bytes)
        more = own * factors[_LIVE]
        return parts, more * (held[:, _LIVE] - idle), more * idle

    def _explained(self) -> Floats:
        used = np.array([name in self.z for name in FACTOR_NAMES])
        return np.asarray(np.linalg.solve(known_covariance(self.evidence, used, self.settings), self.evidence.error))


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedFactor:
    """One factor: ``z`` and its standard deviation; 0 and 1 where the runs do not determine it."""

    factor: MemoryFactor
    z: float
    error: float
    determined: bool

    @property
    def between(self) -> tuple[float, float]:
        """Bounds that hold the factor with 90 % probability."""
        low, high = (max(-LARGEST_Z, min(LARGEST_Z, self.z + side * _NINETY * self.error)) for side in (-1, 1))
        return self.factor.factor(low), self.factor.factor(high)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """Result of a fit. Errors are logarithms of measured over predicted memory, NaN of runs that only have a label:
    ``before``, and ``left_out`` when predicted from all other runs, with its standard deviation.

    ``margin_before`` and ``margin_left_out``: logarithm of the device's memory over the predicted peak: negative where
    a run is predicted not to fit.
    """

    posterior: MemoryPosterior
    factors: tuple[FittedFactor, ...]
    before: Floats
    left_out: Floats
    left_out_spread: Floats
    margin_before: Floats
    margin_left_out: Floats


def fit_memory(runs: Sequence[MemoryRun], settings: Settings = USUAL) -> MemoryFit | None:
    """Fit the factors to measured peaks and to labels; None where there are no runs."""
    if not runs:
        return None
    held, idle, features = _predicted(runs)
    kinds = np.array([run.kind if run.peak_bytes is not None else "device" for run in runs])
    limit = np.array([run.context.cluster.device.memory_bytes for run in runs])
    # What makes a run fail, or not, is what it cannot give back.
    held[:, _LIVE] -= np.where([run.peak_bytes is None for run in runs], idle, 0.0)
    idle = np.where([run.peak_bytes is None for run in runs], 0.0, idle)
    side = np.array([0 if run.peak_bytes is not None else -1 if run.fitted else 1 for run in runs], dtype=np.int8)
    told = np.log([run.peak_bytes or bound for run, bound in zip(runs, limit, strict=True)])
    used = np.ones(len(FACTORS), dtype=bool)
    evidence, z, deviations = _solved(held, features, kinds, told, side, used, settings)
    used = deviations <= SURE
    evidence, z, deviations = _solved(held, features, kinds, told, side, used, settings)
    measured = side == 0
    scale = _scale(evidence, measured, settings)
    found = {name: float(value) for name, value, own in zip(FACTOR_NAMES, z, used, strict=True) if own}
    left_out, spread = _left_out(evidence, used, settings)
    needed = np.log(held.sum(axis=1) - idle)
    # A label is left out like a measurement: with the observation that stands for it.
    at = _log_kind(held * _factors(found), kinds) - evidence.slopes @ np.where(used, z, 0.0)
    predicted = at + evidence.error - left_out
    return MemoryFit(
        posterior=MemoryPosterior(z=found, evidence=evidence, scale=scale, settings=settings),
        factors=tuple(
            FittedFactor(
                factor=factor,
                z=float(z[place]) if used[place] else 0.0,
                error=float(deviations[place]) if used[place] else 1.0,
                determined=bool(used[place]),
            )
            for place, factor in enumerate(FACTORS)
        ),
        before=np.where(measured, told - _log_kind(held, kinds), np.nan),
        left_out=np.where(measured, left_out, np.nan),
        left_out_spread=np.sqrt(scale) * spread,
        margin_before=np.log(limit) - needed,
        margin_left_out=np.log(limit) - _needed(predicted, held, idle, kinds, found),
    )


def held_bytes(context: Context, memory_bytes: Mapping[str, Floats]) -> Floats:
    """Return the bytes [N, 6] on which each of ``FACTORS`` acts; they add up to the device's peak."""
    profile, count = context.framework, len(memory_bytes["reserve"])
    outside = np.full(count, profile.context_bytes + profile.communicator_bytes)
    columns = [sum((memory_bytes[part] for part in factor.parts), np.zeros(count)) for factor in FACTORS[:_LIVE]]
    return np.stack([*columns, np.maximum(memory_bytes["reserve"] - outside, 0.0), outside], axis=1)


def idle_bytes(context: Context, memory_bytes: Mapping[str, Floats]) -> Floats:
    """Return what the allocator keeps only while there is room, shape N: the reserve beyond what is lost for good."""
    profile, live = context.framework, sum((memory_bytes[part] for part in MEMORY_PARTS if part != "reserve"), 0.0)
    lost = profile.context_bytes + profile.communicator_bytes + profile.fragmentation * live
    return np.asarray(np.maximum(memory_bytes["reserve"] - lost, 0.0))


def memory_features(context: Context, table: StrategyTable, held: Floats) -> Features:
    """Return where every row lies, by its axes and by the shares of what is held."""
    return placed(context, table, held / held.sum(axis=1, keepdims=True))


def _factors(z: Mapping[str, float]) -> Floats:
    return np.array([factor.factor(z.get(factor.name, 0.0)) for factor in FACTORS])


def _counted(kinds: NDArray[np.str_]) -> Floats:
    """Return 1 for every factor [N, 6] that the kind of a measurement knows of, else 0."""
    columns = np.arange(len(FACTORS))[None, :]
    upto = np.where(kinds == "allocated", _LIVE, np.where(kinds == "reserved", _INSIDE, len(FACTORS)))
    return np.asarray((columns < upto[:, None]).astype(float))


def _log_kind(held: Floats, kinds: NDArray[np.str_]) -> Floats:
    return np.asarray(np.log((held * _counted(kinds)).sum(axis=1)))


def _slopes(held: Floats, kinds: NDArray[np.str_]) -> Floats:
    """Return the slopes [N, 6] of the logarithm of a peak along the factors: shares times spreads."""
    own = held * _counted(kinds)
    return np.asarray(own / own.sum(axis=1, keepdims=True) * np.array([factor.spread for factor in FACTORS]))


def _predicted(runs: Sequence[MemoryRun]) -> tuple[Floats, Floats, Features]:
    """Return what the catalogue thinks that the runs hold, how much of it is idle, and where they lie."""
    held, idle, parts, order = np.empty((len(runs), len(FACTORS))), np.empty(len(runs)), [], []
    groups: dict[int, list[int]] = {}
    for row, run in enumerate(runs):
        groups.setdefault(id(run.context), []).append(row)
    for rows in groups.values():
        context, table = runs[rows[0]].context, table_of([runs[row].strategy for row in rows])
        memory_bytes = score(context, table).memory_bytes
        held[rows], idle[rows] = held_bytes(context, memory_bytes), idle_bytes(context, memory_bytes)
        parts.append(memory_features(context, table, held[rows]))
        order += rows
    return held, idle, joined(parts).take(np.argsort(order))


def _solved(
    held: Floats,
    features: Features,
    kinds: NDArray[np.str_],
    told: Floats,
    side: NDArray[np.int8],
    used: NDArray[np.bool_],
    settings: Settings,
) -> tuple[Evidence, Floats, Floats]:
    """Return evidence, factors and their standard deviations (Gauss-Newton, reweighted; labels as observations)."""
    residual, noise = residual_covariance(features, features, settings), settings.noise
    z, weight = np.zeros(len(FACTORS)), np.ones(len(told))
    for _ in range(_ROUNDS):
        at = held * np.exp(np.array([factor.spread for factor in FACTORS]) * z)
        slopes = _slopes(at, kinds)
        error = told - _log_kind(at, kinds) + slopes @ z
        own = slopes[:, used]
        prior = own @ own.T + residual
        for _ in range(_REWEIGHTS):
            seen, weight = observations(prior, error, side, noise, np.where(side == 0, weight, 1.0))
            whole = prior + np.diag(noise**2 / weight)
            solved = np.linalg.solve(whole, seen)
            misses = seen - prior @ solved
            robust = np.minimum(1.0, (FREEDOM + 1) / (FREEDOM + misses**2 / noise**2))
            weight = np.where(side == 0, robust, weight)
        z = np.zeros(len(FACTORS))
        z[used] = np.clip(own.T @ solved, -LARGEST_Z, LARGEST_Z)
    deviations = np.ones(len(FACTORS))
    explained = np.linalg.solve(whole, own)
    deviations[used] = np.sqrt(np.maximum(1.0 - np.einsum("nc,nc->c", own, explained), 1e-6))
    return Evidence(features=features, slopes=slopes, error=seen, weight=weight), z, deviations


def _scale(evidence: Evidence, measured: NDArray[np.bool_], settings: Settings) -> float:
    """Return the variance of the errors of measured peaks over what was thought of them."""
    if not measured.any():
        return 1.0
    every = np.ones(len(FACTORS), dtype=bool)
    known = known_covariance(evidence, every, settings)[np.ix_(measured, measured)]
    error = evidence.error[measured]
    return float((DOUBT + error @ np.linalg.solve(known, error)) / (DOUBT + len(error)))


def _left_out(evidence: Evidence, used: NDArray[np.bool_], settings: Settings) -> tuple[Floats, Floats]:
    """Return error and standard deviation of every observation when predicted from all others."""
    even = replace(evidence, weight=np.ones(len(evidence)))
    inverse, whole = (np.linalg.inv(known_covariance(one, used, settings)) for one in (even, evidence))
    return (whole @ evidence.error) / np.diag(whole), np.sqrt(1.0 / np.diag(inverse))


def _needed(predicted: Floats, held: Floats, idle: Floats, kinds: NDArray[np.str_], z: Mapping[str, float]) -> Floats:
    """Return the logarithm of what the device must have from that of a peak of some kind: what the kind does not know
    of is added, what is idle taken away."""
    at, counted = held * _factors(z), _counted(kinds)
    more = (at * (1.0 - counted)).sum(axis=1) - idle * _factors(z)[_LIVE]
    return np.asarray(np.log(np.maximum(np.exp(predicted) + more, 1.0)))
