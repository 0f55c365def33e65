"""The interval of a prediction from errors of published runs, weighted by shared properties.

The error of a prediction is expected as the best linear estimate from the errors of published runs (kriging; Rasmussen
and Williams, Gaussian Processes for Machine Learning, 2006, equations 2.23 to 2.26) with the covariance of
``variance.py``: a device, a framework or a mechanism without a measured run keeps its full variance. The interval is
centred on the prediction without a shared effect, else half way to the expected error, and wider by the other half. If
the errors of similar runs are larger or smaller than expected, the interval is rescaled by the ratio.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from forerun.search.measured.intervals.cells import (
    GATHERED,
    NEW_TABLE,
    Floats,
    Points,
    Residuals,
    RunClass,
    kind_of,
    over_peak,
    residuals,
)
from forerun.search.measured.intervals.unchecked import REALISED
from forerun.search.measured.intervals.variance import (
    Variances,
    cell_covariance,
    covariance,
    likeness,
    relations,
    scatter,
    variance,
    variances,
)
from forerun.spaces.strategies import Context

LEVEL = 0.8
"""Share of measured runs expected within their interval."""
DEVIATIONS = 1.2816
"""Half width of the ``LEVEL`` interval of a normal distribution, in standard deviations."""
SHIFT = 0.5
"""Share of an expected error by which an interval is shifted. With groups, models, sources, frameworks or kinds left
out in turn, a shift by half contains more runs than a full shift at the same width: constants were fitted to the same
runs, so part of a shared error is chance."""
_STEP = 0.05
"""Resolution of computing shares and peaks, so that strategies share intervals."""

_DIGITS = 5
"""Digits of logarithms, since sums over many points and over one point differ in the last bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInterval:
    """The range of measured over predicted, for each of N predictions.

    The share ``LEVEL`` of measured runs is between ``low`` and ``high``, half of the runs below ``middle``.
    """

    low: Floats
    middle: Floats
    high: Floats

    def with_unchecked(self, gain: Floats) -> "ErrorInterval":
        """Return the intervals of predictions with a partly checked gain.

        Parameters
        ----------
        gain
            Relative growth of the step without the gain, shape N (``unchecked_gain``). The expected loss is the missing
            share of one pair of runs; in four of five cases it is between zero and twice this share. Both uncertainties
            are independent.
        """
        missing = (1.0 - REALISED) * gain
        middle = self.middle + missing
        return replace(
            self,
            low=middle - np.hypot(self.middle - self.low, missing),
            middle=middle,
            high=middle + np.hypot(self.high - self.middle, missing),
        )

    def widened(self, error: Floats) -> "ErrorInterval":
        """Return the intervals with a further independent ``error``: a half width as a share of each of N steps."""
        further = error * self.middle
        low, high = (np.hypot(further, self.middle - end) for end in (self.low, self.high))
        return replace(self, low=self.middle - low, high=self.middle + high)

    def with_implausible(self, times: Floats) -> "ErrorInterval":
        """Return the intervals of predictions whose speed is ``times`` (N) the highest published one.

        A further independent error reaches up to the square of the factor that reduces the speed to the published one:
        upper half widths are combined as the root of the sum of squares.
        """
        more = np.maximum(times, 1.0) ** 2
        return replace(self, high=self.middle + np.hypot(self.high - self.middle, (more - 1.0) * self.middle))


def busy_share(time_s: Mapping[str, Floats]) -> Floats:
    """Return the computing share of a step from its parts."""
    total = sum(time_s.values(), np.zeros(1))
    busy: Floats = (time_s["compute"] + time_s["recompute"]) / total
    return busy


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Predicted peaks of memory and their kind.

    ``peak_bytes`` has shape N; ``reading`` is "allocated" (live tensors), "reserved" (memory of the allocator) or
    "device" (all memory in use).
    """

    peak_bytes: Floats
    reading: str = "reserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownErrors:
    """The errors of C cells and their ``covariance`` (C x C)."""

    known: Residuals
    sizes: Variances
    covariance: Floats


def known_errors_of(known: Residuals, sizes: Variances) -> KnownErrors:
    """Compute the covariance of the errors of cells."""
    shared = relations(known.points, known.points)
    return KnownErrors(known=known, sizes=sizes, covariance=cell_covariance(known.points, known.rows, shared, sizes))


@cache
def known_errors(quantity: str) -> KnownErrors:
    """Load the errors of published runs of "step" or "memory"."""
    return known_errors_of(residuals(quantity), variances(quantity))


def shifted(mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return the middle of intervals, and the standard deviation around it, of errors of some mean and variance."""
    return SHIFT * mean, np.sqrt(variance + np.square((1.0 - SHIFT) * mean))


def expected(errors: KnownErrors, asked: Points) -> tuple[Floats, Floats]:
    """Return the middle of the logarithm of measured over predicted at N points of no table, and its deviation."""
    known, sizes = errors.known, errors.sizes
    both = relations(asked, known.points)
    shared = covariance(asked, known.points, both, sizes)
    # Weights of the cells for each point; solving is several times cheaper than inverting, and few points are asked.
    weights = np.asarray(np.linalg.solve(errors.covariance, shared.T).T, dtype=np.float64)
    left = np.maximum(variance(asked, sizes) - (weights * shared).sum(axis=1), scatter(asked, sizes))
    factor = rescaling(likeness(both) * np.sqrt(known.rows), known.missed, sizes)
    middle, deviation = shifted(weights @ known.log_ratio, left * factor**2)
    return np.round(middle, _DIGITS), np.round(deviation, _DIGITS)  # the same for one strategy as for many


def rescaling(weight: Floats, missed: Floats, sizes: Variances) -> Floats:
    """Return the factor on the width of N predictions, from the errors of C cells that count by ``weight`` (N x C).

    ``missed`` has roots of errors, so that the few runs of a table that are far off hardly widen all others.
    """
    return np.asarray(((sizes.prior + weight @ missed) / (sizes.prior + weight.sum(axis=1))) ** 2)


def error_interval(
    context: Context,
    strategies: Sequence[Any],
    busy: Floats,
    peaks: Peaks | None = None,
    guessed: Sequence[bool] | None = None,
) -> ErrorInterval:
    """Estimate the intervals of N strategies without a calibration, of their steps or of ``peaks``.

    On groups of nodes, an interval contains the intervals of all groups.

    Parameters
    ----------
    context
        Training, cluster and software of the strategies.
    strategies
        N strategies with ``devices``, flat ones also with ``zero``.
    busy
        Computing share of the steps (``busy_share``), shape N.
    peaks
        Predicted peaks; None for intervals of steps.
    guessed
        Whether the recompute of each was filled in; None: of no strategy.
    """
    if context.cluster.groups:
        parts = [error_interval(one, strategies, busy, peaks, guessed) for one in group_contexts(context)]
        return ErrorInterval(
            low=np.min([one.low for one in parts], axis=0),
            middle=np.max([one.middle for one in parts], axis=0),
            high=np.max([one.high for one in parts], axis=0),
        )
    flags = guessed or [False] * len(strategies)
    pairs = [
        (GATHERED if getattr(one, "zero", 0) == GATHERED else 0, flag)
        for one, flag in zip(strategies, flags, strict=True)
    ]
    kinds = {pair: kind_of(context, pair[0], guessed=pair[1]) for pair in dict.fromkeys(pairs)}
    asked = asked_points(
        [kinds[pair] for pair in pairs], np.array([float(one.devices) for one in strategies]), busy, peaks
    )
    return intervals(known_errors("step" if peaks is None else "memory"), asked, peaks)


def group_contexts(context: Context) -> list[Context]:
    """Return the context on the nodes of each group of its cluster."""
    return [replace(context, cluster=group.cluster) for group in context.cluster.groups]


def asked_points(kinds: Sequence[RunClass], gpus: Floats, busy: Floats, peaks: Peaks | None = None) -> Points:
    """Return predictions as points, with computing shares and peaks rounded."""
    count = len(kinds)
    return Points(
        kinds=tuple(kinds),
        gpus=np.log2(gpus),
        busy=np.round(np.nan_to_num(busy, nan=1.0) / _STEP) * _STEP,
        tables=np.full(count, NEW_TABLE),
        reading=np.full(count, "" if peaks is None else peaks.reading),
        size=np.zeros(count) if peaks is None else np.round(np.log2(peaks.peak_bytes) / _STEP) * _STEP,
    )


def intervals(errors: KnownErrors, asked: Points, peaks: Peaks | None = None) -> ErrorInterval:
    """Return the intervals at N points; each distinct point is computed once."""
    keys = list(zip(asked.kinds, asked.gpus, asked.busy, asked.size, strict=True))
    first: dict[Any, int] = {}
    for row, key in enumerate(keys):
        first.setdefault(key, row)
    place = {key: number for number, key in enumerate(first)}
    mean, deviation = expected(errors, taken(asked, list(first.values())))
    inverse = np.array([place[key] for key in keys])
    ends = (np.exp(mean + sign * DEVIATIONS * deviation)[inverse] for sign in (-1, 0, 1))
    low, middle, high = ends if peaks is None else (over_peak(end, peaks.peak_bytes) for end in ends)
    return ErrorInterval(low=low, middle=middle, high=high)


def taken(points: Points, rows: Sequence[int]) -> Points:
    """Return a subset of points."""
    chosen = np.array(rows, dtype=np.int64)
    return Points(
        kinds=tuple(points.kinds[row] for row in rows),
        gpus=points.gpus[chosen],
        busy=points.busy[chosen],
        tables=points.tables[chosen],
        reading=points.reading[chosen],
        size=points.size[chosen],
    )
