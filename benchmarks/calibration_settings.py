"""Settings of the residual, chosen without the source that they are judged on (used by benchmarks/calibration.py).

The usual settings were found on groups that the benchmark then judges. To see how much that flatters, settings are
chosen anew for every source from the groups of the other sources alone: each number is moved up and down while ten
runs drawn at random then predict the rest of those groups better (log density, so that intervals count as errors do).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from forerun.search.measured.validate import MeasuredRun
from forerun.simulator import score
from forerun.simulator.calibration import NAMES, PRIORS, USUAL, ErrorPriors, Evidence, Prior
from forerun.simulator.calibration.evidence import FREEDOM, slopes_of
from forerun.simulator.calibration.mixture import Covariances, weighed
from forerun.simulator.calibration.residual import Features, features_of, joined
from forerun.spaces.strategies import table_of

Floats = NDArray[np.float64]

RUNS = 10
STEPS = (0.7, 1.4)
ROUNDS = 2
DRAWS = 3
_EVERY = np.ones(len(NAMES), dtype=bool)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linear:
    """A group on the linear form of the model: ``error`` of its runs with the catalogue (logarithm of measured over
    predicted time), slopes along the constants and features."""

    error: Floats
    slopes: Floats
    features: Features

    def only(self, rows: NDArray[np.intp]) -> "Linear":
        """Return some runs."""
        return Linear(error=self.error[rows], slopes=self.slopes[rows], features=self.features.take(rows))

    @property
    def told(self) -> Evidence:
        """What the runs say."""
        return Evidence(features=self.features, slopes=self.slopes, error=self.error, weight=np.ones(len(self.error)))

    def covariances(self, settings: ErrorPriors) -> Covariances:
        """Return the prior covariances of the errors."""
        return Covariances.of(self.told, _EVERY, settings)


Density = Callable[[Sequence[Linear], ErrorPriors], float]
"""How well settings predict the runs of groups that are not drawn: a mean logarithm, higher is better."""


def linear(runs: Sequence[MeasuredRun], by_context: Iterable[Sequence[int]]) -> Linear:
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


def settings_without(
    source: str, groups: Mapping[str, Sequence[Linear]], density: Density | None = None
) -> ErrorPriors:
    """Return the settings that predict the groups of all sources but one best; ``density``: how well they do, where the
    groups are not of step times."""
    told = density or _density
    others = [group for name, own in sorted(groups.items()) if name != source for group in own]
    best, likeliest = USUAL, told(others, USUAL)
    for _ in range(ROUNDS):
        for field in fields(ErrorPriors):
            for step in STEPS:
                tried = replace(best, **{field.name: getattr(best, field.name) * step})
                found = told(others, tried)
                if found > likeliest:
                    best, likeliest = tried, found
    return best


def errors_of_random_tens(group: Linear, draws: int, settings: ErrorPriors = USUAL) -> Floats:
    """Return the median error of the rest for a number of random choices of ten runs."""
    covariances = group.covariances(settings)
    found = []
    for seed in range(draws):
        chosen, rest = split(group, seed, RUNS)
        shares, means, _ = predicted(group, covariances, settings, chosen)
        found.append(float(np.median(np.abs(np.expm1((shares @ means - group.error)[rest])))))
    return np.array(found)


def _density(groups: Sequence[Linear], settings: ErrorPriors) -> float:
    """Return the mean log density of runs that were not measured; groups count by the root of their size."""
    weights = [len(group.error) ** 0.5 for group in groups]
    return float(np.average([_own_density(group, settings) for group in groups], weights=weights))


@cache  # the search without one source asks for much of what that without another did
def _own_density(group: Linear, settings: ErrorPriors) -> float:
    """Return the mean log density of the runs of one group that were not measured."""
    covariances, found = group.covariances(settings), []
    for seed in range(DRAWS):
        chosen, rest = split(group, seed, min(RUNS, len(group.error) // 2))
        shares, means, variances = predicted(group, covariances, settings, chosen)
        spreads = np.sqrt(variances[:, rest])
        apart = (group.error[rest] - means[:, rest]) / spreads
        found.append(np.mean(np.log(shares @ (student.pdf(apart, FREEDOM) / spreads))))
    return float(np.mean(found))


def split(group: Linear, seed: int, count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return some runs drawn at random, and the others."""
    order = np.random.default_rng(seed).permutation(len(group.error))
    return order[:count], order[count:]


def predicted(
    group: Linear,
    covariances: Covariances,
    settings: ErrorPriors,
    chosen: NDArray[np.intp],
    priors: Sequence[Prior] = PRIORS,
) -> tuple[Floats, Floats, Floats]:
    """Return the shares [K] of all priors, and their mean and variance [K, N] (noise included) of all errors once some
    runs are measured."""
    evidence = group.only(chosen).told
    mixture = weighed(evidence, _EVERY, settings, priors)
    means, variances = np.empty((2, len(priors), len(group.error)))
    for place, (prior, weight) in enumerate(zip(priors, mixture.weight, strict=True)):
        whole = covariances.under(prior)
        cross, noise = whole[:, chosen], prior.noise * settings.noise
        solved = np.linalg.solve(whole[np.ix_(chosen, chosen)] + np.diag(noise**2 / weight), cross.T)
        left = np.diag(whole) - np.einsum("nm,mn->n", cross, solved)
        means[place] = cross @ mixture.solved[place]
        variances[place] = mixture.scale[place] * (np.maximum(left, 0.0) + noise**2)
    return mixture.shares, means, variances
