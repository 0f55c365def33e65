"""Time of the slowest of several workers: order statistics of step times that vary between workers."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.spaces.errors import RequestError

Floats = NDArray[np.float64]

NATURAL_JITTER = 0.02
"""Deviation of a worker's steps over their mean on a quiet machine. Measured values are one to three per cent
(benchmarks/results/2026-11-21-real-runs.md). Asynchronous workers have this default: exactly equal workers that start
together would stay synchronous for ever."""

NEAR_REPLICAS = 8
"""Number of replicas up to which the devices' sustained clocks, taken from runs on one node, include the wait."""
WAIT_PER_DOUBLING = 0.0075
"""Share of its computation that a step waits for the slowest replica, per doubling beyond ``NEAR_REPLICAS``. The
maximum of delays with an exponential tail grows by the same for every doubling. Refitted with the clocks of A100 and
H100, with any table left out, it is 0.9 to 1.2 % (benchmarks/accuracy/cross_validate.py); three quarters of a per cent
do not change these clocks, at the smallest error of all."""

_POINTS = 512
"""Number of equally likely values of a smooth distribution; the largest is the 1 - 1/1024 quantile."""


def lognormal_factors(jitter: float, points: int = _POINTS) -> Floats:
    """Return ``points`` equally likely log-normal factors of mean 1 and standard deviation ``jitter``."""
    if not jitter:
        return np.ones(1)
    from statistics import NormalDist  # imports fractions and decimals, needed only with jitter

    # ln x ~ N(., s^2) has standard deviation over mean sqrt(exp(s^2) - 1) = jitter, so s^2 = ln(1 + jitter^2).
    sigma, normal = math.sqrt(math.log1p(jitter**2)), NormalDist()
    factors = np.exp([sigma * normal.inv_cdf((place + 0.5) / points) for place in range(points)])
    return np.asarray(factors / factors.mean(), dtype=np.float64)


def wait_share(replicas: ArrayLike) -> Floats:
    """Return a step's wait for the slowest of its replicas (data and context ranks), relative to its computation.

    >>> wait_share([1, 8, 32]).tolist()
    [0.0, 0.0, 0.015]
    """
    beyond = np.maximum(np.asarray(replicas, dtype=np.float64) / NEAR_REPLICAS, 1.0)
    return np.asarray(WAIT_PER_DOUBLING * np.log2(beyond))


def expected_maximum(samples: Sequence[float] | Floats, workers: int) -> float:
    """Return E[max] of ``workers`` independent draws from equally likely samples.

    With sorted samples x: sum of x_k ((k/n)^W - ((k-1)/n)^W).
    """
    values = np.sort(np.asarray(samples, dtype=np.float64))
    below = (np.arange(len(values) + 1) / len(values)) ** workers
    return float(values @ np.diff(below))


@lru_cache(maxsize=4096)
def slowest(jitter: float, workers: int) -> float:
    """Return the expected time of the slowest of ``workers`` whose steps vary by ``jitter``, relative to the mean.

    >>> slowest(0.0, 64), round(slowest(0.02, 64), 3)
    (1.0, 1.048)
    """
    return max(expected_maximum(lognormal_factors(jitter), workers), 1.0)


def expected_order(samples: Sequence[float] | Floats, slow: Mapping[int, float], workers: int, wait_for: int) -> float:
    """Return the expected time at which the first ``wait_for`` of ``workers`` are done.

    Worker w takes ``slow.get(w, 1.0)`` times a draw from equally likely ``samples``; the draws are independent.

    Raises
    ------
    RequestError
        ``wait_for`` is below one or above the number of workers.
    """
    if not 1 <= wait_for <= workers:
        raise RequestError(f"1 to {workers} workers can be waited for, but got {wait_for}")
    values = np.sort(np.asarray(samples, dtype=np.float64))
    counts: dict[float, int] = {}
    for worker in range(workers):
        factor = slow.get(worker, 1.0)
        counts[factor] = counts.get(factor, 0) + 1
    # E[T] = sum over grid points t of t (F(t) - F(before t)), with F(t) the probability that enough workers are done:
    # the product of all if all are waited for, else a Poisson-binomial tail.
    grid = np.unique(np.concatenate([values * factor for factor in counts]))
    done = [(_share_done(values, factor, grid), count) for factor, count in counts.items()]
    if wait_for == workers:
        reached = np.prod([share**count for share, count in done], axis=0)
    else:
        reached = _at_least(wait_for, workers, done)
    return float(grid @ np.diff(np.concatenate([[0.0], reached])))


def _share_done(values: Floats, factor: float, grid: Floats) -> Floats:
    """Return the probability that a worker is done at every time of a grid."""
    # Rounding of factor * value must not move a value after its own grid point.
    share = np.searchsorted(values * factor, grid * (1 + 1e-12), side="right") / len(values)
    return np.asarray(share, dtype=np.float64)


def _at_least(wait_for: int, workers: int, done: Sequence[tuple[Floats, int]]) -> Floats:
    """Return the probability that at least ``wait_for`` workers are done (Poisson binomial), at every time."""
    # The largest group of equal workers is binomial; the others are added one by one.
    from scipy.special import betainc

    (share, count), *others = sorted(done, key=lambda group: -group[1])
    rest = workers - count
    chance = np.zeros((rest + 1, len(share)))
    chance[0] = 1.0
    for other, members in others:
        for _ in range(members):
            chance[1:] = chance[1:] * (1 - other) + chance[:-1] * other
            chance[0] *= 1 - other
    reached = np.zeros_like(share)
    for successes in range(rest + 1):
        needed = wait_for - successes
        if needed <= 0:
            enough: Floats | float = 1.0
        elif needed > count:
            enough = 0.0
        else:
            enough = betainc(needed, count - needed + 1, share)  # P(binomial(n, p) >= k) = I_p(k, n - k + 1)
        reached = reached + chance[successes] * enough
    return np.asarray(np.clip(reached, 0.0, 1.0), dtype=np.float64)
