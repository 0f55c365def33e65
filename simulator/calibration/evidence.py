"""Evidence of measured runs on the linearised model: errors, and their change with the constants.

The logarithm of a measured step is the logarithm of the predicted step, plus the product of its slopes along the
constants and their deviations from the catalogue (standard normal each), plus the residual (``residual``), plus noise.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.calibration.constants import CONSTANTS, NAMES, C, calibrated
from forerun.simulator.calibration.residual import ErrorPriors, Features, residual_covariance
from forerun.simulator.opgraph.table import SplitTable
from forerun.simulator.score_table import Floats
from forerun.simulator.scoring import score
from forerun.spaces.strategies import StrategyTable

DOUBT = 4.0
"""Weight, in runs, of the catalogue's expected errors against the errors of measured runs."""
FREEDOM = 4.0
"""Degrees of freedom of Student's distribution, of noise in the fit and of intervals. Outliers are not rare (Lange,
Little and Taylor, Robust Statistical Modeling Using the t Distribution, 1989)."""
FEW = 1 << 13
"""Number of strategies whose covariance with the runs is computed at once, limited by processor caches."""
_STEP = 0.25
"""Distance, in standard deviations, of the two points of a slope from the middle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence of N measured runs.

    ``slopes`` [N, C] along the constants; ``features``; ``error``: logarithm of measured over predicted time, with the
    constants' explained part added back; ``weight`` of each run (below 1: it contradicts the others).
    """

    features: Features
    slopes: Floats
    error: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.error)


def known_covariance(evidence: Evidence, used: NDArray[np.bool_], settings: ErrorPriors) -> Floats:
    """Return the prior covariance [N, N] of the errors of measured runs along the ``used`` constants, with noise."""
    slopes = evidence.slopes[:, used]
    covariance = slopes @ slopes.T + residual_covariance(evidence.features, evidence.features, settings)
    return np.asarray(covariance + np.diag(settings.noise**2 / evidence.weight))


def slopes_of(context: C, table: StrategyTable | SplitTable, live: Collection[str] = NAMES) -> Floats:
    """Return the slopes [N, C] of the log step time along all constants, at the constants of ``context``.

    ``live``: constants that may have an effect; the slopes of others are zero.
    """
    columns = []
    for constant in CONSTANTS:
        if constant.name not in live or not constant.acts_on(context):
            columns.append(np.zeros(len(table)))
            continue
        high, low = (score(calibrated(context, {constant.name: step}), table).step_time_s for step in (_STEP, -_STEP))
        columns.append((np.log(high) - np.log(low)) / (2 * _STEP))
    return np.stack(columns, axis=1)
