"""Share of measured pairs of strategies in the predicted order, by the predicted gap.

Predictions have errors of several per cent, but similar errors for neighbours, so that order is better than errors
suggest. Of pairs of measured runs that differ in strategy only, the share in the predicted order grows with the
predicted gap along ``1 - exp(-(gap / SCALE) ** SHAPE) / 2``: one half for equal predictions, 1 for a large gap.
``benchmarks/accuracy/order_trust.py`` fits it, also with each table left out, and counts how often the order is right.
"""

import numpy as np
from numpy.typing import NDArray

SCALE, SHAPE = 0.053, 0.63
"""Gap (a difference of logarithms) at which 82 % of the pairs are in order, and the steepness of the curve there."""


def order_holds(gap: float) -> float:
    """Return the share of measured pairs in the predicted order at the relative gap of two step times.

    >>> [round(order_holds(gap), 2) for gap in (0.0, 0.01, 0.05, 0.25)]
    [0.5, 0.65, 0.81, 0.96]
    """
    return float(curve(np.log1p(abs(gap)), SCALE, SHAPE))


def curve(gap: NDArray[np.float64], scale: float, shape: float) -> NDArray[np.float64]:
    """Return the share of pairs in order at gaps (differences of logarithms, at least 0); any shape."""
    return np.asarray(1.0 - 0.5 * np.exp(-((gap / scale) ** shape)))
