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
from forerun.simulator.calibration.evidence import DOUBT
from forerun.simulator.memory.risk import PEAKS_SHARE, STEEPNESS
from forerun.simulator.score_table import Floats

_MEMORY_SPREAD = np.pi / np.sqrt(3.0) / STEEPNESS
"""Standard deviation of the logistic curve of risks (``simulator/memory/risk.py``)."""
_LABEL_NOISE = 0.01
"""Standard deviation of the memory at which a device is full."""
_LEAST_RISK = 1e-9
BIAS = 0.35
"""Standard deviation of an error that a wrong catalogue gives to all candidates: a port counted twice, a clock."""
BIASED = 0.03
"""Probability of such a catalogue. An assumption: from groups whose devices and networks are known it cannot be
fitted. It leaves their regrets as they are, with 0.01 and 0.1 too; where all steps are 0.25 to 4 times their
predictions, five runs suffice instead of eight (``benchmarks/tune.py``)."""


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


def belief_after(prior: Belief, rows: Sequence[int], log_time: Floats, *, pending: int = 0) -> Belief:
    """Condition the prior on measured steps, with wider spreads where they contradict it.

    Parameters
    ----------
    prior
        Belief before any run.
    rows
        Indices of the R candidates with a known or expected step.
    log_time
        Logarithms of their steps in seconds, shape R.
    pending
        Number of the last rows whose runs have not finished: their expected steps are no evidence about spreads.

    Returns
    -------
    Belief
        The Gaussian with the mean and covariance of the belief after the runs.

    Notes
    -----
    With probability ``BIASED`` all candidates share a further error of standard deviation ``BIAS``. Under each of the
    two hypotheses the scale of all variances has an inverse gamma prior of ``DOUBT`` degrees of freedom, so that errors
    follow Student's distribution (Gelman et al., Bayesian Data Analysis, 2013, sections 14.8 and 17.2)::

        scale = (DOUBT + e' K^-1 e) / (DOUBT + R)
        weight = probability * |K|^(-1/2) * (1 + e' K^-1 e / DOUBT)^(-(DOUBT + R) / 2)

    e: logarithms of measured over predicted steps. K: their covariance under the hypothesis. Runs closer to their
    predictions than the prior expects leave the spreads as they are. ``DOUBT`` is that of calibrations: by the log
    likelihood of strategies near the best one on the groups of ``benchmarks/tune.py``, 1 to 4 are equal and larger
    values worse, which one source of five decides (the others' steps are close to their predictions).
    """
    if not len(rows):
        return prior
    finished = list(rows[: len(rows) - pending])
    error = log_time[: len(finished)] - prior.log_time[finished]
    parts, weights = list[Belief](), list[float]()
    for probability, bias in ((1 - BIASED, 0.0), (BIASED, BIAS)):
        wide = replace(prior, covariance=prior.covariance + bias**2)
        known = wide.covariance[np.ix_(finished, finished)] + prior.noise * np.eye(len(finished))
        surprise, freedom = float(error @ np.linalg.solve(known, error)), DOUBT + len(finished)
        scale = max(1.0, (DOUBT + surprise) / freedom)
        log_density = -0.5 * (np.linalg.slogdet(known)[1] + freedom * np.log1p(surprise / DOUBT))
        belief = wide.conditioned(rows, log_time)
        parts.append(replace(belief, covariance=scale * belief.covariance, noise=scale * belief.noise))
        weights.append(np.log(probability) + log_density)
    return _mixed(parts, np.exp(np.array(weights) - max(weights)))


def _mixed(parts: Sequence[Belief], weights: Floats) -> Belief:
    """Return the Gaussian with the mean and covariance of a mixture of beliefs."""
    shares = weights / weights.sum()
    # mean = sum p_k m_k, covariance = sum p_k (K_k + (m_k - mean) (m_k - mean)^T).
    mean = shares @ np.array([part.log_time for part in parts])
    offsets = [part.log_time - mean for part in parts]
    second = [part.covariance + np.outer(offset, offset) for part, offset in zip(parts, offsets, strict=True)]
    noise = float(shares @ [part.noise for part in parts])
    return Belief(log_time=mean, covariance=np.tensordot(shares, second, axes=1), noise=noise)


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
