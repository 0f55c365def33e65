"""Choice of the most informative runs about all candidates, for a calibration.

A run reduces the variance of every candidate with a shared error. Runs are chosen one after the other, each as if the
earlier runs had been measured as predicted; runs are then exchanged while that reduces the uncertainty (Fedorov, Theory
of Optimal Experiments, 1972), since early choices do not consider later ones.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.calibration import Belief
from forerun.simulator.score_table import Floats
from forerun.spaces.errors import RequestError

_EXCHANGES, _LITTLE = 3, 1e-9
"""Exchanges tried for each chosen run, and the least gain of an exchange (of a mean standard deviation)."""


def informative(belief: Belief, count: int, known: Collection[int] = ()) -> list[tuple[int, float]]:
    """Choose the runs that leave the smallest mean standard deviation of all predictions.

    Parameters
    ----------
    belief
        Belief about N candidates.
    count
        Number of runs.
    known
        Candidates that need not be measured again.

    Returns
    -------
    list
        Place of each run among the candidates, most useful first, and the fall of the mean standard deviation (a
        logarithm of the step time) when it is measured after the earlier runs.

    Raises
    ------
    RequestError
        Fewer candidates than runs remain.
    """
    left = np.ones(len(belief.log_time), dtype=bool)
    left[list(known)] = False
    if not 1 <= count <= left.sum():
        raise RequestError(f"{left.sum()} candidates are left, but {count} are to be proposed")
    left &= np.isin(np.arange(len(left)), _exchanged(belief, left, count))
    chosen: list[tuple[int, float]] = []
    for _ in range(count):
        gains = np.where(left, _fall_of_spread(belief), -np.inf)
        row = int(gains.argmax())
        chosen.append((row, max(float(gains[row]), 0.0)))
        left[row] = False
        belief = _measured(belief, [row])
    return chosen


def _exchanged(belief: Belief, left: NDArray[np.bool_], count: int) -> list[int]:
    """Choose rows out of ``left`` with the smallest joint uncertainty, by exchanges of one row."""
    chosen: list[int] = []
    for turn in range(count * (1 + _EXCHANGES)):
        kept, before = (chosen, None) if turn < count else (chosen[1:], chosen[0])
        gains = _fall_of_spread(_measured(belief, kept))
        gains[~left] = -np.inf
        gains[kept] = -np.inf
        row = int(gains.argmax())
        if before is not None and gains[row] <= gains[before] + _LITTLE:
            row = before
        chosen = [*kept, row]
    return chosen


def _measured(belief: Belief, rows: Sequence[int]) -> Belief:
    """Return the belief after some rows are measured as expected."""
    return belief.conditioned(rows, belief.log_time[list(rows)])


def _fall_of_spread(belief: Belief) -> Floats:
    """Compute the fall of the mean standard deviation when each of N runs is measured, shape N."""
    variance = np.maximum(np.diag(belief.covariance), 0.0)
    after = np.maximum(variance[:, None] - belief.covariance**2 / (variance + belief.noise)[None, :], 0.0)
    return np.asarray(np.sqrt(variance).mean() - np.sqrt(after).mean(axis=0))
