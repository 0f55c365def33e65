"""Settings of the residual, chosen without the source that they are judged on (used by benchmarks/calibration.py).

The usual settings were found on groups that the benchmark then judges. To see how much that flatters, settings are
chosen anew for every source from the groups of the other sources alone: each number is moved up and down while ten
runs drawn at random then predict the rest of those groups better (log density, so that intervals count as errors do).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from forerun.search.validate import Run
from forerun.simulator import score
from forerun.simulator.calibration import USUAL, Settings
from forerun.simulator.calibration.posterior import DOUBT, FREEDOM, slopes_of
from forerun.simulator.calibration.residual import Features, features_of, joined, residual_covariance
from forerun.spaces.strategies import table_of

Floats = NDArray[np.float64]

RUNS = 10
STEPS = (0.7, 1.4)
ROUNDS = 2
DRAWS = 3
LEVEL = 0.9
_REWEIGHTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A group on the linear form of the model: ``error`` of its runs with the catalogue (logarithm of measured over
    predicted time), slopes along the constants and features."""

    error: Floats
    slopes: Floats
    features: Features

    def covariance(self, settings: Settings) -> Floats:
        """Return the prior covariance of the errors."""
        return self.slopes @ self.slopes.T + residual_covariance(self.features, self.features, settings)


def linear(runs: Sequence[Run], by_context: Iterable[Sequence[int]]) -> Linear:
    """Return runs, sorted by context, on the linear form."""
    slopes, features, log_time = [], [], []
    for rows in by_context:
        context, table = runs[rows[0]].context, table_of([runs[row].strategy for row in rows])
        scores = score(context, table)
        slopes.append(slopes_of(context, table))
        features.append(features_of(context, table, scores.time_s))
        log_time.append(np.log(scores.step_time_s))
    measured = np.log(np.array([run.step_time_s for run in runs], dtype=float))
    return Linear(error=measured - np.concatenate(log_time), slopes=np.concatenate(slopes), features=joined(features))


def settings_without(source: str, groups: Mapping[str, Sequence[Linear]]) -> Settings:
    """Return the settings that predict the groups of all sources but one best."""
    others = [group for name, own in sorted(groups.items()) if name != source for group in own]
    best, density = USUAL, _density(others, USUAL)
    for _ in range(ROUNDS):
        for field in fields(Settings):
            for step in STEPS:
                tried = replace(best, **{field.name: getattr(best, field.name) * step})
                found = _density(others, tried)
                if found > density:
                    best, density = tried, found
    return best


def errors_of_random_tens(group: Linear, draws: int, settings: Settings = USUAL) -> Floats:
    """Return the median error of the rest for a number of random choices of ten runs."""
    covariance = group.covariance(settings)
    found = []
    for seed in range(draws):
        chosen, rest = _split(group, seed, RUNS)
        mean, _ = _predicted(covariance, settings, group.error, chosen)
        found.append(float(np.median(np.abs(np.expm1(mean[rest] - group.error[rest])))))
    return np.array(found)


def _density(groups: Sequence[Linear], settings: Settings) -> float:
    """Return the mean log density of runs that were not measured; groups count by the root of their size."""
    total = weight = 0.0
    for group in groups:
        covariance = group.covariance(settings)
        own = []
        for seed in range(DRAWS):
            chosen, rest = _split(group, seed, min(RUNS, len(group.error) // 2))
            mean, variance = _predicted(covariance, settings, group.error, chosen)
            spread = np.sqrt(variance[rest])
            own.append(np.mean(student.logpdf((group.error - mean)[rest] / spread, FREEDOM) - np.log(spread)))
        total += float(np.mean(own)) * len(group.error) ** 0.5
        weight += len(group.error) ** 0.5
    return total / weight


def _split(group: Linear, seed: int, count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    order = np.random.default_rng(seed).permutation(len(group.error))
    return order[:count], order[count:]


def _predicted(
    covariance: Floats, settings: Settings, error: Floats, chosen: NDArray[np.intp]
) -> tuple[Floats, Floats]:
    """Return mean and variance (noise included) of all errors once some runs are measured."""
    own, weight = covariance[np.ix_(chosen, chosen)], np.ones(len(chosen))
    for _ in range(_REWEIGHTS):
        whole = own + np.diag(settings.noise**2 / weight)
        solved = np.linalg.solve(whole, error[chosen])
        weight = np.minimum(1.0, (FREEDOM + 1) / (FREEDOM + (error[chosen] - own @ solved) ** 2 / settings.noise**2))
    half = np.linalg.solve(np.linalg.cholesky(whole), np.column_stack([covariance[chosen], error[chosen]]))
    left = np.diag(covariance) - (half[:, :-1] ** 2).sum(axis=0)
    scale = (DOUBT + half[:, -1] @ half[:, -1]) / (DOUBT + len(chosen))
    return covariance[:, chosen] @ solved, scale * (np.maximum(left, 0.0) + settings.noise**2)
