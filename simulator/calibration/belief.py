"""Predictions with uncertainty: correlated, and mixtures of Student's distributions where priors differ.

Every prior that the runs leave plausible (``mixture``) predicts a strategy with its own mean and spread. Intervals are
quantiles of the mixture; the choice of runs and comparisons of two strategies need covariances, and use the single
Gaussian of equal mean and covariance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from forerun.simulator.calibration.evidence import FREEDOM
from forerun.simulator.score_table import Floats

LEVEL = 0.9
"""Probability of the shown intervals."""
_FOR_EVER = 100.0
"""Log of a time longer than any step."""
_HALVINGS = 40
_LEAST = 1e-12
"""Standard deviation of certain quantities."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_DRAWS = 2048
"""Samples of the expected regret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Beliefs of K priors about N strategies.

    ``shares`` [K] of the belief (or [K, N]), ``offset`` [K, N] of their means from the mixture's (in logarithm), and
    ``spread`` [K, N] of a further measured run.
    """

    shares: Floats
    offset: Floats
    spread: Floats

    def quantile(self, probability: float) -> Floats:
        """Return the distance from the mixture's mean (shape N) below which it has ``probability``.

        Bisection between the smallest and the largest quantile of the components.
        """
        spread, shares = np.maximum(self.spread, _LEAST), self.shares.reshape(len(self.shares), -1)
        constants = self.offset + spread * stdtrit(FREEDOM, probability)
        low, high = constants.min(axis=0), constants.max(axis=0)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            below = (shares * stdtr(FREEDOM, (middle - self.offset) / spread)).sum(axis=0) < probability
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(0.5 * (low + high))

    def without(self, rows: Sequence[int]) -> "Components":
        """Return the components without uncertainty about some strategies."""
        offset, spread = self.offset.copy(), self.spread.copy()
        offset[:, list(rows)] = spread[:, list(rows)] = 0.0
        return replace(self, offset=offset, spread=spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Predictions of N strategies: ``log_time`` of the step and its ``covariance`` [N, N] without noise.

    ``noise``: variance of one more measured run. ``components``: of the mixture, None for a single Gaussian.
    """

    log_time: Floats
    covariance: Floats
    noise: float
    components: Components | None = None

    def spread(self, *, noisy: bool = True) -> Floats:
        """Return the standard deviation of every ``log_time``; ``noisy``: of a further measured run."""
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0) + (self.noise if noisy else 0.0)))

    def time_s(self) -> Floats:
        """Return the expected step times."""
        return np.asarray(np.exp(self.log_time))

    def costing(self, factor: Floats) -> "Belief":
        """Return the belief about step times multiplied by known factors (shape N)."""
        return replace(self, log_time=self.log_time + np.log(factor))

    def conditioned(self, rows: Sequence[int], log_time: Floats) -> "Belief":
        """Condition the belief on measured logarithms of step times.

        Parameters
        ----------
        rows
            Indices of the R measured strategies.
        log_time
            Logarithms of their measured step times in seconds, shape R.

        Returns
        -------
        Belief
            Gaussian belief after the runs.

        Notes
        -----
        Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, equations 2.23 and 2.24.
        """
        if not len(rows):
            return self
        place = list(rows)
        # m' = m + K_r (K_rr + n I)^-1 (y - m_r) and K' = K - K_r (K_rr + n I)^-1 K_r^T, for the measured rows r.
        known = self.covariance[np.ix_(place, place)] + self.noise * np.eye(len(place))
        weights = np.linalg.solve(known, self.covariance[place])
        return replace(
            self,
            log_time=self.log_time + (log_time - self.log_time[place]) @ weights,
            covariance=np.asarray(self.covariance - self.covariance[:, place] @ weights),
            components=None,
        )

    def knowledge_gradients(self) -> Floats:
        """Return the expected fall of the least expected log step time when each strategy is measured, shape N.

        Notes
        -----
        Frazier, Powell and Dayanik, The Knowledge-Gradient Policy for Correlated Normal Beliefs, 2009, equation 11, by
        Gauss-Hermite quadrature.
        """
        # KG_j = min m - E[min over i of (m_i + s_ij Z)], with s_ij = K_ij / sqrt(K_jj + n) and Z standard normal.
        reach = self.covariance / np.maximum(self.spread(), _LEAST)[None, :]
        fall = np.zeros(len(self.log_time))
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            fall += weight * (self.log_time.min() - (self.log_time[:, None] + reach * node).min(axis=0))
        return np.maximum(fall, 0.0)

    def expected_regret(self) -> float:
        """Return the expected log slowdown of the strategy believed fastest against the fastest."""
        # E[x_best - min over i of x_i] of draws x = m + K^(1/2) z, where K^(1/2) = V sqrt(L).
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        normal = np.random.default_rng(0).standard_normal((len(values), _DRAWS))
        times = self.log_time[:, None] + root @ normal
        return float((times[int(self.log_time.argmin())] - times.min(axis=0)).mean())

    def without(self, rows: Sequence[int]) -> "Belief":
        """Return the belief with some strategies excluded: infinitely slow and without uncertainty."""
        log_time, covariance = self.log_time.copy(), self.covariance.copy()
        log_time[list(rows)] = _FOR_EVER
        covariance[list(rows), :] = covariance[:, list(rows)] = 0.0
        components = None if self.components is None else self.components.without(rows)
        return replace(self, log_time=log_time, covariance=covariance, components=components)

    def reach(self, level: float) -> tuple[Floats, Floats]:
        """Return the factors by which a run may be faster and slower, between which ``level`` of the belief lies."""
        if self.components is None:
            both = np.exp(quantile(level) * self.spread())
            return both, both
        tail = (1 - level) / 2
        low, high = self.components.quantile(tail), self.components.quantile(1 - tail)
        # A mean outside the bulk of its mixture is still inside its interval.
        return np.exp(np.maximum(-low, 0.0)), np.exp(np.maximum(high, 0.0))

    def interval_s(self, level: float) -> tuple[Floats, Floats]:
        """Return the bounds that contain a measured step time with probability ``level``."""
        faster, slower = self.reach(level)
        return self.time_s() / faster, self.time_s() * slower

    def alike(self, level: float) -> NDArray[np.bool_]:
        """Return [N, N]: whether the central ``level`` of the difference of two strategies includes both signs."""
        # var(x_i - x_j) = K_ii + K_jj - 2 K_ij + 2 n.
        variances = np.diag(self.covariance)
        variance = np.maximum(variances[:, None] + variances[None, :] - 2 * self.covariance, 0.0) + 2 * self.noise
        gap = np.abs(self.log_time[:, None] - self.log_time[None, :])
        return np.asarray(gap <= quantile(level) * np.sqrt(variance))


def quantile(level: float) -> float:
    """Return the standard deviations around the mean that contain ``level`` of the distribution of errors."""
    return float(stdtrit(FREEDOM, 0.5 + level / 2))
