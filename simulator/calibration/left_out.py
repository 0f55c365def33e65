"""Every measured run as the others predict it, without fitting again.

Under one prior in closed form (Rasmussen and Williams 2006, section 5.4.2); the shares of the priors are those that the
other runs alone give them. Slopes and weights stay where the whole fit has them.
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
    """Logarithms of measured over predicted time, shape N: the ``error``, and the bounds ``low`` and ``high`` between
    which it was expected with probability ``LEVEL``."""

    error: Floats
    low: Floats
    high: Floats

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether every run lies within the interval that the others predict."""
        return np.asarray((self.low <= self.error) & (self.error <= self.high))


def left_out(evidence: Evidence, mixture: PriorMixture, used: NDArray[np.bool_], settings: ErrorPriors) -> LeftOut:
    """Return the error of every run when it is predicted from all others, along the ``used`` constants."""
    own, every = (Covariances.of(evidence, which, settings) for which in (used, np.ones_like(used)))
    error, (errors, spreads, told) = evidence.error, np.empty((3, *mixture.weight.shape))
    for place, (prior, weight) in enumerate(zip(mixture.priors, mixture.weight, strict=True)):
        alone = np.linalg.inv(own.known(prior, weight))
        errors[place] = (alone @ error) / np.diag(alone)
        whole = every.known(prior, weight)
        inverse = np.linalg.inv(whole)
        variance = 1.0 / np.diag(inverse)
        # The run itself is looked at as one that nobody has seen: with the usual noise.
        noise = (prior.noise * settings.noise) ** 2
        spreads[place] = np.sqrt(mixture.scale[place] * np.maximum(variance - noise / weight + noise, noise))
        size = error @ inverse @ error - (inverse @ error) ** 2 * variance
        log_determinant = np.linalg.slogdet(whole)[1] - np.log(variance)
        told[place] = student_density(size, log_determinant, len(error) - 1)
    shares = shares_of(told)
    middle = (shares * errors).sum(axis=0)
    # What a prior predicts lies above the mixture's middle by what its error lies below the mixture's.
    parts = Components(shares=shares, offset=middle - errors, spread=spreads)
    return LeftOut(error=middle, low=parts.quantile((1 - LEVEL) / 2), high=parts.quantile((1 + LEVEL) / 2))
