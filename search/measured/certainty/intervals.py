"""The interval of a prediction: weighted quantiles of what was left over of published runs, those most alike first.

A run counts the less the less alike it is: by device, framework, kind of model, precision, number of devices and what
the step waits for. Where few were alike, runs of other kinds decide, and the interval is widened besides. Its middle is
where measured runs lay, so that kinds known to be too fast have an interval above their prediction; less so where one
publication alone says it. The prediction itself stays as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from forerun.search.measured.certainty.residuals import (
    GATHERED,
    Floats,
    Residuals,
    RunClass,
    kind_of,
    over_peak,
    residuals,
)
from forerun.search.measured.certainty.unchecked import REALISED
from forerun.spaces.strategies import Context

LEVEL = 0.8
"""Share of measured runs that are to lie within their interval."""

LIKENESS: Mapping[str, float] = {
    "device": 0.3,
    "generation": 0.8,
    "framework": 0.4,
    "by_layer": 0.5,
    "experts": 0.1,
    "narrow": 0.25,
}
"""What a run counts that differs in this, over one that does not. Chosen, with those below, for the narrowest
intervals that hold when the runs of a whole table, or of a group of one, are left out in turn
(``benchmarks/accuracy/residuals.py``)."""
BUSY_REACH = 0.1
"""A run counts e times less for every so much that the computing share of its step differs."""
DOUBLINGS = 2.0
"""A run counts e times less for every so many doublings of devices that it differs by; of peaks, for as many doublings
of the peak, too."""
OTHER_READING = 0.2
"""What a peak counts that was read in another way: live tensors, what the allocator holds, or the whole device."""
UNLIKE_WIDTH = 0.2
"""By how much (as a logarithm) either end of a step's interval moves out where no run is alike."""
UNLIKE_PEAK_WIDTH = 0.11
"""As much of a peak's."""
SUPPORT = 0.2
"""Weight of like runs that halves this; a run of a table of N counts 1 / sqrt(N), so that all of it count sqrt(N)."""
ONE_TABLE = 0.5
"""Share by which the interval moves back to the prediction where one table decides: its bias may be its own."""
OWN = 5
"""Quantiles of measured runs of the very kind from which their middle lies within the interval, whatever others say."""
_STEP = 0.05
"""Computing shares are rounded to this, so that strategies share their intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """Measured over predicted, for each of N predictions: ``LEVEL`` of measured runs lie between ``low`` and ``high``,
    half of them below ``middle``. ``alike``: share of what was looked at that had the same device, framework and kind
    of model."""

    low: Floats
    middle: Floats
    high: Floats
    alike: Floats

    def with_unchecked(self, gain: Floats) -> "Certainty":
        """Return the same of predictions that rest on a gain which is checked in part (``unchecked_gain``, N): as much
        of it is missing as one pair of runs missed, and four times of five no more than twice as much, nor less than
        nothing. Both doubts are independent."""
        missing = (1.0 - REALISED) * gain
        middle = self.middle + missing
        return replace(
            self,
            low=middle - np.hypot(self.middle - self.low, missing),
            middle=middle,
            high=middle + np.hypot(self.high - self.middle, missing),
        )


def busy_share(time_s: Mapping[str, Floats]) -> Floats:
    """Return what part of a step computes, from its parts."""
    total = sum(time_s.values(), np.zeros(1))
    busy: Floats = (time_s["compute"] + time_s["recompute"]) / total
    return busy


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Peaks that are asked about: ``peak_bytes`` (N) as predicted, and how they are read: "allocated" (live tensors),
    "reserved" (what the allocator holds) or "device" (what is in use on the whole device)."""

    peak_bytes: Floats
    reading: str = "reserved"


def certainty_of(context: Context, strategies: Sequence[Any], busy: Floats, peaks: Peaks | None = None) -> Certainty:
    """Return how sure the predictions of N strategies are, before any calibration: of their steps, or of ``peaks``.

    ``strategies``: what has ``devices``, and ``zero`` where it is flat; ``busy`` (N): the share of their steps that
    computes (``busy_share``).
    """
    known = residuals("step" if peaks is None else "memory")
    gpus = np.array([strategy.devices for strategy in strategies], dtype=float)
    gathered = np.array([getattr(strategy, "zero", 0) == GATHERED for strategy in strategies])
    found = np.empty((4, len(gpus)))
    for zero, own in ((0, ~gathered), (GATHERED, gathered)):
        if own.any():
            there = None if peaks is None else replace(peaks, peak_bytes=peaks.peak_bytes[own])
            sure = intervals(known, kind_of(context, zero), gpus[own], busy[own], there)
            found[:, own] = sure.low, sure.middle, sure.high, sure.alike
    low, middle, high, alike = found
    return Certainty(low=low, middle=middle, high=high, alike=alike)


def intervals(known: Residuals, kind: RunClass, gpus: Floats, busy: Floats, peaks: Peaks | None = None) -> Certainty:
    """Return how sure N predictions of a kind are by what is known; ``gpus`` and ``busy`` (share of the step that
    devices compute): shape N; each distinct one is looked up once. ``known`` is of memory where ``peaks`` are given."""
    rounded = np.round(np.nan_to_num(busy, nan=1.0) / _STEP) * _STEP
    doublings = np.zeros(len(gpus)) if peaks is None else np.round(np.log2(peaks.peak_bytes) / _STEP) * _STEP
    keys, inverse = np.unique(np.stack([gpus, rounded, doublings]), axis=1, return_inverse=True)
    order = np.argsort(known.log_ratio, kind="stable")
    ratios, ends = known.log_ratio[order], np.array([(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
    base = known.weight * _likeness(known, kind)
    if peaks is not None:
        base = base * np.where(known.readings == peaks.reading, 1.0, OTHER_READING)
    unlike = UNLIKE_WIDTH if peaks is None else UNLIKE_PEAK_WIDTH
    same = np.array([_same(one, kind) for one in known.kinds])
    exact = np.array([one == kind for one in known.kinds])
    found = np.empty((4, keys.shape[1]))
    for place, (devices, share, size) in enumerate(keys.T):
        distance = np.abs(np.log2(known.gpus / devices)) / DOUBLINGS + np.abs(known.busy - share) / BUSY_REACH
        if peaks is not None:
            distance += np.abs(np.log2(known.peak_bytes) - size) / DOUBLINGS
        weight = base * np.exp(-distance)
        total = np.cumsum(weight[order])
        quantiles = ratios[np.searchsorted(total, ends * total[-1]).clip(max=len(order) - 1)]
        of_table = np.bincount(known.tables, weights=weight)
        tables = total[-1] ** 2 / (of_table**2).sum()
        wider = unlike / (1 + total[-1] / SUPPORT)
        found[:3, place] = np.exp(quantiles - quantiles[1] * ONE_TABLE / tables + np.array([-wider, 0.0, wider]))
        if exact.sum() >= OWN:  # no interval leaves out what was measured of the very kind
            own = np.cumsum((weight * exact)[order])
            middle = np.exp(ratios[np.searchsorted(own, own[-1] / 2)])
            found[0, place], found[2, place] = min(found[0, place], middle), max(found[2, place], middle)
        found[3, place] = (weight * same).sum() / total[-1]
    low, middle, high, alike = found[:, inverse.reshape(-1)]
    if peaks is not None:
        low, middle, high = (over_peak(ratio, peaks.peak_bytes) for ratio in (low, middle, high))
    return Certainty(low=low, middle=middle, high=high, alike=alike)


def _same(one: RunClass, other: RunClass) -> bool:
    return (one.device, one.framework, one.experts) == (other.device, other.framework, other.experts)


def _likeness(known: Residuals, kind: RunClass) -> Floats:
    """Return how much every quantile counts by its kind alone, P."""
    names = [field.name for field in fields(RunClass)]
    unique = {
        one: float(np.prod([LIKENESS[name] for name in names if getattr(one, name) != getattr(kind, name)]))
        for one in set(known.kinds)
    }
    return np.array([unique[one] for one in known.kinds])
