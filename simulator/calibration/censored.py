"""Belief about a Gaussian quantity from observations, some of which are only bounds.

A run that ran out of memory shows that it needed more than the device has, any other run that it needed no more. Each
such label is replaced by the Gaussian observation that changes the belief's mean and variance equally, given all other
observations (expectation propagation; Minka, 2001; Rasmussen and Williams 2006, section 3.6).
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr  # scipy.stats takes a third of a second to import

from forerun.simulator.score_table import Floats

_ROUNDS, _DAMPING = 15, 0.7
_CLOSE = 1e-6
_LOG_ROOT = np.log(2.0 * np.pi) / 2.0
_FAINT, _LOUD = 1e-6, 1.0
"""Smallest and largest weight of a label relative to a measurement."""


def observations(
    prior: Floats, value: Floats, side: NDArray[np.int8], noise: float, weight: Floats
) -> tuple[Floats, Floats]:
    """Return the observations [N] that represent measurements and labels, and their weights.

    ``prior``: covariance [N, N] of the quantity, whose mean is zero. ``side``: 0 for a ``value`` measured with standard
    deviation ``noise`` over the root of ``weight``; 1 for a quantity above ``value``, -1 for one below it, both up to
    ``noise``.
    """
    labels = np.flatnonzero(side)
    seen, told = value.copy(), weight.copy()
    if not len(labels):
        return seen, told
    seen[labels], told[labels] = 0.0, _FAINT
    # Each label is a factor exp(-p x^2 / 2 + h x) of precision p and pull h, equal to a measurement of h / p with
    # weight p noise^2. The initial factors are weak.
    precision, pull = np.full(len(labels), _FAINT / noise**2), np.zeros(len(labels))
    for _ in range(_ROUNDS):
        explained = np.linalg.solve(prior + np.diag(noise**2 / told), prior).T
        mean, variance = explained @ seen, np.diag(prior) - np.einsum("nm,nm->n", explained, prior)
        # Cavity: the belief about a label's quantity (mean m, variance v) without its own factor, 1 / v' = 1 / v - p
        # and m' = (m / v - h) v'.
        spread, middle = np.maximum(variance[labels], 1e-12), mean[labels]
        left = np.maximum(1.0 / spread - precision, 1e-9)
        cavity_mean, cavity = (middle / spread - pull) / left, 1.0 / left
        goal_mean, goal = _truncated(cavity_mean, cavity, value[labels], side[labels].astype(float), noise)
        # The factor that turns the cavity into a belief with the mean and variance of the cavity truncated at the
        # bound.
        wanted = np.clip(1.0 / goal - left, _FAINT / noise**2, _LOUD / noise**2)
        # The pull gives the right mean at the limited precision.
        wanted_pull = goal_mean * (left + wanted) - cavity_mean * left
        moved = float(np.abs(wanted - precision).max() * noise**2 + np.abs(wanted_pull - pull).max() * noise**2)
        precision += _DAMPING * (wanted - precision)
        pull += _DAMPING * (wanted_pull - pull)
        seen[labels], told[labels] = pull / precision, precision * noise**2
        if moved < _CLOSE:
            break
    return seen, told


def _truncated(mean: Floats, variance: Floats, bound: Floats, side: Floats, noise: float) -> tuple[Floats, Floats]:
    """Return mean and variance of Gaussian quantities truncated on one side of a noisy bound."""
    # With a = side (m - bound) / s, s^2 = v + noise^2 and g = phi(a) / Phi(a): mean = m + side v g / s, variance = v -
    # v^2 / s^2 g (g + a) (Rasmussen and Williams 2006, section 3.9).
    spread = np.sqrt(variance + noise**2)
    far = side * (mean - bound) / spread
    slope = np.exp(-(far**2) / 2.0 - _LOG_ROOT - log_ndtr(far))
    expected = mean + side * variance / spread * slope
    left = variance - variance**2 / spread**2 * slope * (slope + far)
    return expected, np.maximum(left, 1e-12)
