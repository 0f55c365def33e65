"""Mixture of several priors, weighted by the evidence of the runs.

Machines differ in their distance from the catalogue, in the common error of similar strategies and in the repeatability
of runs: where the catalogue is already right, its own spreads let ten runs move it too far. Ten runs do not determine
the right spreads either, so none is chosen: each of a few priors (``PRIORS``) is fitted alone, and their predictions
are averaged with shares proportional to the density that each gave to the runs before seeing them (Bayesian model
averaging; Hoeting, Madigan, Raftery and Volinsky, 1999). Within one prior everything is Gaussian with a learned scale,
so the density of the runs is Student's, with degrees of freedom given by the uncertainty of the scale (Rasmussen and
Williams 2006, sections 5.4.1 and 9.9).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import gammaln

from forerun.simulator.calibration.evidence import DOUBT, FREEDOM, Evidence
from forerun.simulator.calibration.residual import ErrorPriors, residual_covariance
from forerun.simulator.score_table import Floats

_REWEIGHTS = 8
_STILL = 1e-4
"""Largest change of a run's weight at convergence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """A prior of a machine: factors on standard deviations.

    The factors act on the constants (``Constant.spread``), the residual and the noise (``ErrorPriors``).
    """

    constants: float = 1.0
    residual: float = 1.0
    noise: float = 1.0


WIDE = Prior()
"""Spreads equal to the differences among the catalogue's own devices and profiles."""
PRIORS = tuple(
    Prior(constants=constants, residual=residual, noise=noise)
    for constants, residual, noise in product((0.25, 1.0), (0.5, 1.0), (0.5, 1.0, 2.0))
)
"""All priors of a calibration, equally likely before any run. Machines are like the catalogue's or as different as
others are, in few steps of two to four, since values in between are averaged (docs/decisions/calibration.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorMixture:
    """K priors after N runs.

    ``shares`` [K] of the belief (sum 1), ``weight`` [K, N] of the runs, ``scale`` [K] of all variances, and ``solved``
    [K, N], the inverse covariance of the runs times their errors.
    """

    priors: tuple[Prior, ...]
    shares: Floats
    weight: Floats
    scale: Floats
    solved: Floats

    def __len__(self) -> int:
        return len(self.priors)

    def constants(self, evidence: Evidence, used: NDArray[np.bool_]) -> Floats:
        """Return the constants [K, C] of every prior; 0 for constants not ``used``."""
        spreads = np.array([prior.constants for prior in self.priors])
        return np.asarray(np.where(used, spreads[:, None] ** 2 * (self.solved @ evidence.slopes), 0.0))

    @property
    def explained(self) -> Floats:
        """Weights [N] of the runs in the residual of other strategies, over all priors."""
        amplitudes = np.array([prior.residual for prior in self.priors])
        return np.asarray((self.shares * amplitudes**2) @ self.solved)


@dataclass(frozen=True, slots=True)
class Covariances:
    """Prior covariances [N, N] of the errors of runs, the building blocks of every prior's covariance."""

    along: Floats
    residual: Floats
    noise: float

    @classmethod
    def of(cls, evidence: Evidence, used: NDArray[np.bool_], settings: ErrorPriors) -> "Covariances":
        """Return the covariances of measured runs along the ``used`` constants."""
        # cov(e_i, e_j) = c^2 s_i . s_j + r^2 k(x_i, x_j) + (n noise)^2 [i = j] / weight_i, with slopes s along the
        # constants and features x.
        slopes = evidence.slopes[:, used]
        residual = residual_covariance(evidence.features, evidence.features, settings)
        return cls(slopes @ slopes.T, residual, settings.noise)

    def under(self, prior: Prior) -> Floats:
        """Return the covariance without noise."""
        return np.asarray(prior.constants**2 * self.along + prior.residual**2 * self.residual)

    def known(self, prior: Prior, weight: Floats) -> Floats:
        """Return the covariance [N, N] of runs of ``weight`` [N] each, including noise."""
        return self.under(prior) + np.diag((prior.noise * self.noise) ** 2 / weight)


def weighed(
    evidence: Evidence,
    used: NDArray[np.bool_],
    settings: ErrorPriors,
    priors: Sequence[Prior],
    weight: Floats | None = None,
) -> PriorMixture:
    """Weigh priors by runs, fitted along the ``used`` constants; ``weight`` [K, N]: initial weights.

    The shares take all constants into account, as intervals do.
    """
    covariances = Covariances.of(evidence, used, settings)
    start = np.ones((len(priors), len(evidence))) if weight is None else weight
    weights = np.array(
        [_robust(covariances, evidence.error, prior, one) for prior, one in zip(priors, start, strict=True)]
    )
    weights = weights.reshape(start.shape)
    every = Covariances.of(evidence, np.ones_like(used), settings)
    densities = [
        log_density(every.known(prior, one), evidence.error) for prior, one in zip(priors, weights, strict=True)
    ]
    return restored(evidence, used, settings, priors, shares_of(np.array(densities)), weights)


def restored(
    evidence: Evidence,
    used: NDArray[np.bool_],
    settings: ErrorPriors,
    priors: Sequence[Prior],
    shares: Floats,
    weight: Floats,
) -> PriorMixture:
    """Return a mixture with known ``shares`` [K] and ``weight`` [K, N]; ``used``: fitted constants [C]."""
    covariances, every = (Covariances.of(evidence, which, settings) for which in (used, np.ones_like(used)))
    solved, scale = np.zeros(weight.shape), np.ones(len(priors))
    for place, (prior, one) in enumerate(zip(priors, weight, strict=True)):
        if not len(evidence):
            break
        solved[place] = _solve(covariances.known(prior, one), evidence.error)
        size = float(evidence.error @ _solve(every.known(prior, one), evidence.error))
        scale[place] = (DOUBT + size) / (DOUBT + len(evidence))
    return PriorMixture(priors=tuple(priors), shares=shares, weight=weight, scale=scale, solved=solved)


def shares_of(log_densities: Floats) -> Floats:
    """Return the shares [K] (or [K, ...]) of initially equal priors from the log densities of the observations."""
    # share_k = p(errors | prior k) / sum over priors.
    shares = np.exp(log_densities - log_densities.max(axis=0))
    return np.asarray(shares / shares.sum(axis=0))


def log_density(covariance: Floats, error: Floats) -> float:
    """Return the log density of ``error`` [N] under a multivariate Student's distribution.

    ``covariance`` [N, N] is known up to its scale.
    """
    if not len(error):
        return 0.0
    factor = cho_factor(covariance, lower=True)
    size = float(error @ cho_solve(factor, error))
    return float(student_density(size, 2 * np.log(np.diag(factor[0])).sum(), len(error)))


def student_density(size: Floats | float, log_determinant: Floats | float, count: int) -> Floats:
    """Return the log density of ``count`` errors from their squared ``size`` and the log determinant.

    ``size`` is in units of their covariance, whose determinant is meant.
    """
    # p(e) is proportional to |S|^(-1/2) (1 + e^T S^-1 e / v)^(-(v + n) / 2), with v = DOUBT degrees of freedom.
    degrees = DOUBT + count
    constant = gammaln(degrees / 2) - gammaln(DOUBT / 2) - count / 2 * math.log(DOUBT * math.pi)
    return np.asarray(constant - log_determinant / 2 - degrees / 2 * np.log1p(np.asarray(size) / DOUBT))


def _robust(covariances: Covariances, error: Floats, prior: Prior, weight: Floats) -> Floats:
    """Return the weights of runs under one prior: least squares, reweighted."""
    if not len(error):
        return weight
    # Student errors as reweighted least squares: w_i = min(1, (v + 1) / (v + miss_i^2 / noise^2)).
    covariance, noise = covariances.under(prior), prior.noise * covariances.noise
    for _ in range(_REWEIGHTS):
        misses = error - covariance @ _solve(covariance + np.diag(noise**2 / weight), error)
        before, weight = weight, np.minimum(1.0, (FREEDOM + 1) / (FREEDOM + misses**2 / noise**2))
        if np.abs(weight - before).max() < _STILL:
            break
    return weight


def _solve(covariance: Floats, error: Floats) -> Floats:
    return np.asarray(cho_solve(cho_factor(covariance, lower=True), error))
