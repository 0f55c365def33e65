"""What is known of step times after some runs were measured: constants, errors of strategies alike, and how sure.

The logarithm of a measured step is the logarithm of the predicted one, plus its slopes along the constants times how
far these are from the catalogue (standard normal each), plus the residual (``residual``), plus noise. With slopes taken
at the fitted constants that is linear, so that everything known stays Gaussian with one covariance over all strategies:
errors of similar strategies are correlated, and the difference of two is often far surer than either.
The scale of all of it is learned from the runs too; intervals are Student's, since some runs lie far apart.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.stats import t as student

from forerun.simulator.calibration.constants import CONSTANTS, NAMES, calibrated
from forerun.simulator.calibration.residual import USUAL, Features, Settings, features_of, joined, residual_covariance
from forerun.simulator.score import score
from forerun.simulator.score_table import Floats
from forerun.spaces.strategies import Context, StrategyTable

if TYPE_CHECKING:
    from forerun.simulator.calibration.memory import MemoryPosterior

LEVEL = 0.9
"""Probability of the intervals that are shown."""
DOUBT = 4.0
"""Runs that the catalogue's idea of its own errors is worth against what measured runs say of them."""
FREEDOM = 4.0
"""Degrees of freedom of Student's distribution, of noise in the fit and of intervals: runs that lie apart are not rare
(Lange, Little and Taylor, Robust Statistical Modeling Using the t Distribution, 1989)."""
_STEP = 0.25
"""Standard deviations on both sides between which slopes are taken."""
_FOR_EVER = 100.0
"""Logarithm of more seconds than any step takes."""
FEW = 1 << 14
"""Strategies whose covariance with the runs is computed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What N measured runs say: ``slopes`` [N, C] along the constants, ``features``, ``error`` (measured over
    predicted time at the fitted constants, in logarithm, with what the constants explain of it added back), ``weight``
    of each run (below 1: it disagrees with the others)."""

    features: Features
    slopes: Floats
    error: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Predictions of N strategies: ``log_time`` of the step and its ``covariance`` [N, N] without noise.

    ``noise``: variance of one more measured run.
    """

    log_time: Floats
    covariance: Floats
    noise: float

    def spread(self, *, noisy: bool = True) -> Floats:
        """Return the standard deviation of every ``log_time``; ``noisy``: of a run that would be measured."""
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0) + (self.noise if noisy else 0.0)))

    def time_s(self) -> Floats:
        """Return the expected step times."""
        return np.asarray(np.exp(self.log_time))

    def costing(self, factor: Floats) -> "Belief":
        """Return the belief about step times that are multiplied by known numbers (shape N)."""
        return replace(self, log_time=self.log_time + np.log(factor))

    def without(self, rows: Sequence[int]) -> "Belief":
        """Return the belief with some strategies ruled out: they take for ever, and nothing is unknown about them."""
        log_time, covariance = self.log_time.copy(), self.covariance.copy()
        log_time[list(rows)] = _FOR_EVER
        covariance[list(rows), :] = covariance[:, list(rows)] = 0.0
        return replace(self, log_time=log_time, covariance=covariance)

    def reach(self, level: float) -> Floats:
        """Return the factor by which a measured step may be longer, or shorter, with probability ``level``."""
        return np.asarray(np.exp(quantile(level) * self.spread()))

    def interval_s(self, level: float) -> tuple[Floats, Floats]:
        """Return the bounds between which a measured step time lies with probability ``level``."""
        middle, reach = np.exp(self.log_time), self.reach(level)
        return middle / reach, middle * reach

    def alike(self, level: float) -> NDArray[np.bool_]:
        """Return [N, N]: whether ``level`` of what is believed of the difference of two strategies has both signs."""
        own = np.diag(self.covariance)
        variance = np.maximum(own[:, None] + own[None, :] - 2 * self.covariance, 0.0) + 2 * self.noise
        gap = np.abs(self.log_time[:, None] - self.log_time[None, :])
        return np.asarray(gap <= quantile(level) * np.sqrt(variance))


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """What measured runs have taught. ``z``: fitted constants by name (those that the runs determine); a context that
    was ``applied`` has them built in and carries the rest as its correction. ``held``: the same of memory."""

    z: Mapping[str, float]
    evidence: Evidence
    settings: Settings = USUAL
    held: "MemoryPosterior | None" = None

    def applied(self, context: Context) -> Context:
        """Return a context of the calibrated machine, whose scores carry the residual of alike strategies too."""
        known = calibrated(context, self.z)
        return replace(known if self.held is None else self.held.applied(known), correction=self)

    def memory(
        self, context: Context, table: StrategyTable, memory_bytes: Mapping[str, Floats]
    ) -> Mapping[str, Floats]:
        """Return the parts of the peak memory (see ``Context.correction``): as they are where none was measured."""
        return memory_bytes if self.held is None else self.held.memory_bytes(context, table, memory_bytes)

    @property
    def scale(self) -> float:
        """Variance of the errors over what the catalogue thinks of them."""
        if not len(self.evidence):
            return 1.0
        lower = np.linalg.cholesky(self._known(everything=True))
        whitened = solve_triangular(lower, self.evidence.error, lower=True)
        return float((DOUBT + whitened @ whitened) / (DOUBT + len(self.evidence)))

    def factor(self, context: Context, table: StrategyTable, time_s: Mapping[str, Floats]) -> Floats:
        """Return the factor on the step time of every row that the residual makes (see ``Context.correction``)."""
        result = np.ones(len(table))
        if not len(self.evidence):
            return result
        explained = self._explained()
        for start in range(0, len(table), FEW):
            rows = slice(start, start + FEW)
            part = features_of(context, table.take(rows), {name: values[rows] for name, values in time_s.items()})
            result[rows] = np.exp(residual_covariance(part, self.evidence.features, self.settings) @ explained)
        return result

    def believe(self, parts: Sequence[tuple[Context, StrategyTable]]) -> Belief:
        """Return what is believed of the strategies of some tables, one after the other; each context was ``applied``.

        The covariance takes every constant into account, also those that the runs do not determine.
        """
        bare = [(replace(context, correction=None), table) for context, table in parts]
        scores = [score(context, table) for context, table in bare]
        features = joined([features_of(*part, one.time_s) for part, one in zip(bare, scores, strict=True)])
        slopes = np.concatenate([slopes_of(*part) for part in bare])
        covariance = slopes @ slopes.T + residual_covariance(features, features, self.settings)
        log_time, scale = np.log(np.concatenate([one.step_time_s for one in scores])), self.scale
        if len(self.evidence):
            residual = residual_covariance(features, self.evidence.features, self.settings)
            log_time = log_time + residual @ self._explained()
            lower = np.linalg.cholesky(self._known(everything=True))
            half = solve_triangular(lower, (slopes @ self.evidence.slopes.T + residual).T, lower=True)
            covariance = covariance - half.T @ half
        return Belief(
            log_time=log_time,
            covariance=scale * covariance,
            noise=scale * self.settings.noise**2,
        )

    def _explained(self) -> Floats:
        """Return the weights of the runs by which the residual of other strategies is told."""
        return np.asarray(np.linalg.solve(self._known(everything=False), self.evidence.error))

    def _known(self, *, everything: bool) -> Floats:
        """Return the prior covariance of the runs, noise included; ``everything``: also along constants that are not
        fitted."""
        used = np.array([everything or name in self.z for name in NAMES])
        return known_covariance(self.evidence, used, self.settings)


def quantile(level: float) -> float:
    """Return how many standard deviations ``level`` of the distribution of errors lies around its middle."""
    return float(student(FREEDOM).ppf(0.5 + level / 2))


def known_covariance(evidence: Evidence, used: NDArray[np.bool_], settings: Settings) -> Floats:
    """Return the prior covariance [N, N] of the errors of measured runs along the ``used`` constants, with noise."""
    slopes = evidence.slopes[:, used]
    covariance = slopes @ slopes.T + residual_covariance(evidence.features, evidence.features, settings)
    return np.asarray(covariance + np.diag(settings.noise**2 / evidence.weight))


def slopes_of(context: Context, table: StrategyTable, live: Collection[str] = NAMES) -> Floats:
    """Return the slopes [N, C] of the logarithm of the step time along all constants, from where ``context`` is.

    ``live``: those that may matter; the others' slopes are zero.
    """
    columns = []
    for constant in CONSTANTS:
        if constant.name not in live:
            columns.append(np.zeros(len(table)))
            continue
        high, low = (score(calibrated(context, {constant.name: step}), table).step_time_s for step in (_STEP, -_STEP))
        columns.append((np.log(high) - np.log(low)) / (2 * _STEP))
    return np.stack(columns, axis=1)


def nothing_measured(settings: Settings = USUAL) -> Posterior:
    """Return what is believed before any run: the catalogue, with its usual errors."""
    empty = np.zeros((0, 0))
    features = Features(empty, empty, np.zeros((0, 0), dtype=np.str_))
    evidence = Evidence(features=features, slopes=np.zeros((0, len(NAMES))), error=np.zeros(0), weight=np.ones(0))
    return Posterior(z={}, evidence=evidence, settings=settings)
