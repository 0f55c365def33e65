"""How likely a strategy is to run out of memory, by what measured runs predicted that full did.

Peaks are predicted with an error of several per cent, so a strategy that needs 98 % of a device on paper runs out of
memory more often than one that needs 80 %. Whether published runs ended so, against the share of the device's memory
that forerun predicts for them, follows a logistic curve over the logarithm of that share.
``benchmarks/accuracy/memory_risk.py`` fits it, also leaving each table out, and counts how often it holds.
"""

import math

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.errors import RequestError

EVEN_SHARE = 1.02
"""Predicted share of the device's memory at which half of the runs ran out."""
STEEPNESS = 16.0
"""Logits per unit of the logarithm of the share."""
RISKY = 0.1
"""Risk from which a row is marked."""


def oom_risk(share: float) -> float:
    """Return the share of runs that run out of memory among those predicted to need ``share`` of the device's memory.

    >>> round(oom_risk(0.7), 3), round(oom_risk(0.97), 2)
    (0.002, 0.31)
    """
    return 0.0 if share <= 0 else float(curve(np.asarray(share), EVEN_SHARE, STEEPNESS))


def curve(share: NDArray[np.float64], even: float, steepness: float) -> NDArray[np.float64]:
    """Return the risk at some shares above 0, on the curve with half of the runs at ``even``; any shape."""
    return np.asarray(1.0 / (1.0 + (even / share) ** steepness))


def share_at(risk: float) -> float:
    """Return the largest share of the device's memory that a strategy may need at a risk; never above 1.

    Raises:
        RequestError: no such probability.

    >>> round(share_at(0.05), 2)
    0.85
    """
    if not 0 < risk < 1:
        raise RequestError(f"a risk of running out of memory is above 0 and below 1 (5% or 0.05), but got {risk:g}")
    return min(1.0, EVEN_SHARE * math.exp(math.log(risk / (1 - risk)) / STEEPNESS))
