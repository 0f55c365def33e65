"""Step times and memory of candidates as correlated Gaussians, and what measured runs leave of them.

The logarithm of a step time is the predicted one plus an error. The error is a sum of effects that candidates share:
one common to all (device, framework, kind of run), one per axis on which two candidates have the same choice, and one
of the candidate alone. Conditioning on measured runs is exact (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, equations 2.23 and 2.24). N: candidates.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.simulator.calibration import Belief
from forerun.simulator.score_table import Floats

_WORD = re.compile(r"^([a-z-]+?)(?:=(.*)|([0-9][0-9/]*))?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """Standard deviations of the logarithm of measured over predicted step time, by what candidates share."""

    common: float = 0.08
    """All candidates: device, framework, kind of run."""
    axes: float = 0.08
    """Candidates that agree on all axes; those that agree on some share that part of the variance."""
    alone: float = 0.03
    """A single candidate."""
    noise: float = 0.01
    """Between two runs of the same candidate."""


USUAL = Spreads()


def axes_of(strategy: str) -> Mapping[str, str]:
    """Split the text of a strategy into axes and choices.

    >>> axes_of("tp4 dp2 sp recompute=full")
    {'tp': '4', 'dp': '2', 'sp': 'on', 'recompute': 'full'}
    """
    matches = [match for word in strategy.split() if (match := _WORD.match(word))]
    return {match[1]: match[2] or match[3] or "on" for match in matches}


def shared_axes(axes: Sequence[Mapping[str, str]]) -> Floats:
    """Count the axes on which candidates agree, as a share of those on which any two differ, shape N x N."""
    names = sorted({name for one in axes for name in one})
    columns = [np.array([one.get(name, "") for one in axes]) for name in names]
    differing = [column for column in columns if len(set(column)) > 1]
    if not differing:
        return np.ones((len(axes), len(axes)))
    return np.asarray(np.mean([np.equal.outer(column, column) for column in differing], axis=0), dtype=np.float64)


def prior_belief(log_time: Floats, axes: Sequence[Mapping[str, str]], spreads: Spreads = USUAL) -> Belief:
    """Build the belief before any run from predicted times (N) and the axes of the candidates."""
    covariance = spreads.common**2 + spreads.axes**2 * shared_axes(axes) + spreads.alone**2 * np.eye(len(axes))
    return Belief(log_time=log_time, covariance=covariance, noise=spreads.noise**2)


def conditioned(belief: Belief, rows: Sequence[int], log_time: Floats) -> Belief:
    """Condition a belief on the measured ``log_time`` of some rows."""
    if not len(rows):
        return belief
    place = list(rows)
    known = belief.covariance[np.ix_(place, place)] + belief.noise * np.eye(len(place))
    weights = np.linalg.solve(known, belief.covariance[place])
    return replace(
        belief,
        log_time=belief.log_time + (log_time - belief.log_time[place]) @ weights,
        covariance=np.asarray(belief.covariance - belief.covariance[:, place] @ weights),
        components=None,
    )
