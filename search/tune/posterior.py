"""Step times and memory of candidates as correlated Gaussians, updated by measured runs.

The logarithm of a step time is the predicted one plus an error. The error is a sum of effects that candidates share:
one for all candidates (device, framework, kind of run), one for every axis with the same choice, and one of a single
candidate. The logarithm of the memory that a candidate needs relative to the available memory has an error of the same
form, of which a run reveals only the sign. N: candidates; R: runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from forerun.simulator.calibration import Belief
from forerun.simulator.calibration.censored import observations
from forerun.simulator.memory.risk import PEAKS_SHARE, STEEPNESS
from forerun.simulator.score_table import Floats

_MEMORY_SPREAD = np.pi / np.sqrt(3.0) / STEEPNESS
"""Standard deviation of the logistic curve of risks (``simulator/memory/risk.py``)."""
_LABEL_NOISE = 0.01
"""Standard deviation of the memory at which a device is full."""
_LEAST_RISK = 1e-9
DOUBT = 4.0
"""Runs of which the spreads are worth as much evidence. On the 21 groups of ``benchmarks/tune.py``, as predicted, with
the framework and with the device unknown, the log likelihood of strategies near the best one after one to three runs
rises from 0.77 to 1.51 per strategy; 2 gives 1.52, 8 gives 1.49. It was chosen on these groups and not cross-validated;
their regrets do not judge it, since no run of the replay is weighed against its cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """Standard deviations of the logarithm of measured over predicted step time, by shared properties.

    Chosen on the 21 measured groups that ``benchmarks/tune.py`` replays, which also shows results of other spreads:
    if they are chosen without the judged source, or halved or doubled one at a time, the mean regret after three runs
    is 0.1 to 2.4 % (0.1 % as chosen), and 3.8 to 5.8 % for unknown frameworks (3.8 %).
    """

    common: float = 0.08
    """All candidates: device, framework, kind of run."""
    axes: float = 0.12
    """Candidates that agree on all axes; the variance is shared in proportion to the axes on which they agree."""
    alone: float = 0.03
    """A single candidate."""
    noise: float = 0.02
    """A single run of a candidate."""


USUAL = Spreads()


def agreement(axes: Sequence[Mapping[str, str]]) -> Floats:
    """Count the axes on which candidates agree, as a share of axes on which any two candidates differ, shape N x N."""
    names = sorted({name for one in axes for name in one})
    columns = [np.array([one.get(name, "") for one in axes]) for name in names]
    differing = [column for column in columns if len(set(column)) > 1]
    if not differing:
        return np.ones((len(axes), len(axes)))
    return np.asarray(sum(np.equal.outer(column, column).astype(float) for column in differing) / len(differing))


def prior_belief(log_time: Floats, agreed: Floats, spreads: Spreads = USUAL) -> Belief:
    """Build the belief before any run from predicted times (N) and the ``agreement`` of candidates (N x N)."""
    covariance = spreads.common**2 + spreads.axes**2 * agreed + spreads.alone**2 * np.eye(len(agreed))
    return Belief(log_time=log_time, covariance=covariance, noise=spreads.noise**2)


def belief_after(prior: Belief, rows: Sequence[int], log_time: Floats) -> Belief:
    """Condition the prior on measured steps, with wider spreads where they contradict it.

    Parameters
    ----------
    prior
        Belief before any run.
    rows
        Indices of the R measured candidates.
    log_time
        Logarithms of their measured steps in seconds, shape R.

    Returns
    -------
    Belief
        Belief after the runs, its covariance and noise multiplied by the expected scale of all variances.

    Notes
    -----
    The scale has an inverse gamma prior of ``DOUBT`` degrees of freedom (Gelman et al., Bayesian Data Analysis, 2013,
    section 14.8)::

        scale = (DOUBT + e' K^-1 e) / (DOUBT + R)

    e: logarithms of measured over predicted steps. K: their covariance under the prior. Runs closer to their
    predictions than the prior expects leave the spreads as they are.
    """
    if not len(rows):
        return prior
    belief, place = prior.conditioned(rows, log_time), list(rows)
    covariance = prior.covariance[np.ix_(place, place)] + prior.noise * np.eye(len(place))
    error = log_time - prior.log_time[place]
    surprise = float(error @ np.linalg.solve(covariance, error))
    scale = max(1.0, (DOUBT + surprise) / (DOUBT + len(place)))
    return replace(belief, covariance=scale * belief.covariance, noise=scale * belief.noise)


def risks_after(risk: Floats, agreed: Floats, rows: Sequence[int], failed: Sequence[bool]) -> Floats:
    """Compute OOM probabilities after runs with known outcomes.

    Parameters
    ----------
    risk
        Probabilities before any run, shape N.
    agreed
        Agreement of the candidates, shape N x N.
    rows
        Positions of the R candidates that ran.
    failed
        Whether each ran out of memory, shape R.

    Returns
    -------
    Floats
        Probabilities after the runs, shape N.

    Notes
    -----
    A candidate fails if a Gaussian, the logarithm of needed over available memory, is above zero. The share
    ``PEAKS_SHARE`` of its variance is common to all candidates, and an equal share follows axes. Labels enter by
    expectation propagation (``simulator/calibration/censored.py``).
    """
    if not len(rows):
        return risk
    place = list(rows)
    mean = _MEMORY_SPREAD * ndtri(np.clip(risk, _LEAST_RISK, 1 - _LEAST_RISK))
    shared = PEAKS_SHARE * (1.0 + agreed) + (1 - 2 * PEAKS_SHARE) * np.eye(len(risk))
    covariance = _MEMORY_SPREAD**2 * shared
    known, side = covariance[np.ix_(place, place)], np.where(failed, 1, -1).astype(np.int8)
    seen, weight = observations(known, -mean[place], side, _LABEL_NOISE, np.ones(len(place)))
    weights = np.linalg.solve(known + np.diag(_LABEL_NOISE**2 / weight), covariance[place])
    left = np.diag(covariance) - np.einsum("rn,rn->n", weights, covariance[place])
    return np.asarray(ndtr((mean + seen @ weights) / np.sqrt(np.maximum(left, _LABEL_NOISE**2))))


def expected_improvement(belief: Belief, best: float) -> Floats:
    """Compute the expected improvement of every candidate over ``best`` (a logarithm of seconds), shape N.

    Notes
    -----
    Closed form of a normal distribution (Jones, Schonlau and Welch, Efficient Global Optimization of Expensive
    Black-Box Functions, 1998, equation 15). It is the knowledge gradient of a choice among measured candidates.
    """
    spread = np.maximum(belief.spread(noisy=False), 1e-12)
    distance = (best - belief.log_time) / spread
    density = np.exp(-(distance**2) / 2) / np.sqrt(2 * np.pi)
    return np.asarray(spread * (distance * ndtr(distance) + density))
