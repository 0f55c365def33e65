"""Which run to measure next.

For the choice of a strategy: the run whose result is expected to lower most the step time of the strategy that would be
picked afterwards, which is the expected fall of the regret of the final choice (knowledge gradient; Frazier, Powell and
Dayanik, The Knowledge-Gradient Policy for Correlated Normal Beliefs, 2009). For accuracy everywhere: the run that takes
most variance from all strategies together. Several runs at once are chosen one after the other, each as if those
before it had come out as predicted; for accuracy each is then exchanged for another while that leaves less uncertain
(Fedorov, Theory of Optimal Experiments, 1972), since the runs chosen first knew nothing of those after them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.calibration import Belief
from forerun.simulator.score_table import Floats
from forerun.spaces.errors import RequestError, unknown

RULES = ("regret", "accuracy")
"""What measuring is for: the choice of the best strategy, or small errors of all."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_EXCHANGES, _LITTLE = 3, 1e-9
"""How often each chosen run is looked at again, and what an exchange has to gain (of a mean standard deviation)."""
_DRAWS = 2048
"""Samples from which the expected regret is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One run to measure: its ``row`` among the candidates, and ``gain``, by how much (as a share of the step time) it
    is expected to lower the regret of the final choice, or the mean standard deviation of all predictions."""

    row: int
    gain: float


def propose(belief: Belief, count: int, *, rule: str = "regret", known: Sequence[int] = ()) -> list[Proposal]:
    """Return the ``count`` runs to measure next, most useful first; ``known``: rows that need not be measured again.

    Raises:
        RequestError: no such rule, or fewer candidates than runs.
    """
    if rule not in RULES:
        raise unknown("reason to measure", rule, RULES)
    if not 1 <= count <= len(belief.log_time) - len(known):
        raise RequestError(f"{len(belief.log_time) - len(known)} candidates are left, but {count} are to be proposed")
    covariance, left = belief.covariance.copy(), np.ones(len(belief.log_time), dtype=bool)
    left[list(known)] = False
    chosen: list[Proposal] = []
    if rule == "accuracy":
        left &= np.isin(np.arange(len(left)), _exchanged(covariance, belief.noise, left, count))
    for _ in range(count):
        if rule == "regret":
            gains = _fall_of_regret(belief.log_time, covariance, belief.noise)
            if gains[left].max() <= 1e-12:  # nothing can change the choice any more: make sure of the best ones
                gains = -belief.log_time
        else:
            gains = _fall_of_spread(covariance, belief.noise)
        gains[~left] = -np.inf
        row = int(gains.argmax())
        chosen.append(Proposal(row=row, gain=max(float(gains[row]), 0.0)))
        left[row] = False
        covariance = _measured(covariance, belief.noise, [row])
    return chosen


def _exchanged(covariance: Floats, noise: float, left: NDArray[np.bool_], count: int) -> list[int]:
    """Return ``count`` rows out of those ``left`` that together leave little uncertain: the greedy choice, improved by
    exchanges of one row."""
    chosen: list[int] = []
    for turn in range(count * (1 + _EXCHANGES)):
        kept, before = (chosen, None) if turn < count else (chosen[1:], chosen[0])
        gains = _fall_of_spread(_measured(covariance, noise, kept), noise)
        gains[~left] = -np.inf
        gains[kept] = -np.inf
        row = int(gains.argmax())
        if before is not None and gains[row] <= gains[before] + _LITTLE:
            row = before
        chosen = [*kept, row]
    return chosen


def _measured(covariance: Floats, noise: float, rows: Sequence[int]) -> Floats:
    """Return the covariance that is left once some rows are measured."""
    if not rows:
        return covariance
    own = covariance[np.ix_(rows, rows)] + noise * np.eye(len(rows))
    return np.asarray(covariance - covariance[:, rows] @ np.linalg.solve(own, covariance[rows]))


def expected_regret(belief: Belief) -> float:
    """Return by how much the strategy believed fastest is expected to be slower than the fastest (a logarithm)."""
    size = len(belief.log_time)
    values, vectors = np.linalg.eigh(belief.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    normal = np.random.default_rng(0).standard_normal((size, _DRAWS))
    times = belief.log_time[:, None] + root @ normal
    best = int(belief.log_time.argmin())
    return float((times[best] - times.min(axis=0)).mean())


def _fall_of_regret(log_time: Floats, covariance: Floats, noise: float) -> Floats:
    """Return by how much the least expected time falls when each of N runs is measured, averaged over its outcomes."""
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0) + noise)
    reach = covariance / spread[None, :]
    fall = np.zeros(len(log_time))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        fall += weight * (log_time.min() - (log_time[:, None] + reach * node).min(axis=0))
    return fall


def _fall_of_spread(covariance: Floats, noise: float) -> Floats:
    """Return by how much the mean standard deviation of all falls when each of N runs is measured."""
    variance = np.maximum(np.diag(covariance), 0.0)
    after = np.maximum(variance[:, None] - covariance**2 / (variance + noise)[None, :], 0.0)
    return np.asarray(np.sqrt(variance).mean() - np.sqrt(after).mean(axis=0))
