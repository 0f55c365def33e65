"""Prediction of every measured run from the others, without another fit.

Each prior has a closed form (Rasmussen and Williams 2006, section 5.4.2); the priors' shares are those given by the
other runs alone. Slopes and weights are those of the fit to all runs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.calibration.belief import LEVEL, Components
from forerun.simulator.calibration.evidence import Evidence
from forerun.simulator.calibration.mixture import Covariances, PriorMixture, shares_of, student_density
from forerun.simulator.calibration.residual import ErrorPriors
from forerun.simulator.score_table import Floats


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
