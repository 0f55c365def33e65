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
_EXCHANGES, _LITTLE = 3, 1e-9
"""How often each chosen run is looked at again, and what an exchange has to gain (of a mean standard deviation)."""


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
    left = np.ones(len(belief.log_time), dtype=bool)
    left[list(known)] = False
    chosen: list[Proposal] = []
    if rule == "accuracy":
        left &= np.isin(np.arange(len(left)), _exchanged(belief, left, count))
    for _ in range(count):
        if rule == "regret":
            gains = belief.knowledge_gradients()
            if gains[left].max() <= 1e-12:  # nothing can change the choice any more: make sure of the best ones
                gains = -belief.log_time
        else:
            gains = _fall_of_spread(belief)
        gains[~left] = -np.inf
        row = int(gains.argmax())
        chosen.append(Proposal(row=row, gain=max(float(gains[row]), 0.0)))
        left[row] = False
        belief = _measured(belief, [row])
    return chosen


def _exchanged(belief: Belief, left: NDArray[np.bool_], count: int) -> list[int]:
    """Return ``count`` rows out of those ``left`` that together leave little uncertain: the greedy choice, improved by
    exchanges of one row."""
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
    """Return the belief that is left once some rows are measured as expected."""
    return belief.conditioned(rows, belief.log_time[list(rows)])


def _fall_of_spread(belief: Belief) -> Floats:
    """Return by how much the mean standard deviation of all falls when each of N runs is measured."""
    variance = np.maximum(np.diag(belief.covariance), 0.0)
    after = np.maximum(variance[:, None] - belief.covariance**2 / (variance + belief.noise)[None, :], 0.0)
    return np.asarray(np.sqrt(variance).mean() - np.sqrt(after).mean(axis=0))
