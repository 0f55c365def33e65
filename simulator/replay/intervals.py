"""Lengths of unions and differences of intervals, as arrays [n, 2] of starts and ends."""

import numpy as np

from forerun.simulator.replay.trace import Floats


def union(start_s: Floats, end_s: Floats) -> Floats:
    """Return the union as disjoint intervals [m, 2] in order; empty intervals vanish."""
    kept = end_s > start_s
    start_s, end_s = start_s[kept], end_s[kept]
    if not len(start_s):
        return np.empty((0, 2))
    order = np.argsort(start_s, kind="stable")
    start_s, reach = start_s[order], np.maximum.accumulate(end_s[order])
    first = np.flatnonzero(np.concatenate([[True], start_s[1:] > reach[:-1]]))
    last = np.concatenate([first[1:] - 1, [len(start_s) - 1]])
    return np.column_stack([start_s[first], reach[last]])


def length(intervals: Floats) -> float:
    """Return the summed length of disjoint intervals."""
    return float((intervals[:, 1] - intervals[:, 0]).sum())


def joined(*parts: Floats) -> Floats:
    """Return the union of several sets of intervals."""
    every = np.concatenate(parts)
    return union(every[:, 0], every[:, 1])


def outside(intervals: Floats, others: Floats) -> float:
    """Return the length of disjoint intervals that no interval of another disjoint set covers."""
    return length(joined(intervals, others)) - length(others)


def covered(intervals: Floats, start_s: Floats, end_s: Floats) -> Floats:
    """Return the seconds of each [start, end] that disjoint intervals cover."""
    if not len(intervals):
        return np.zeros(len(start_s))
    before = np.concatenate([[0.0], np.cumsum(intervals[:, 1] - intervals[:, 0])])

    def reached(moment: Floats) -> Floats:
        place = np.searchsorted(intervals[:, 0], moment, side="right")
        partial = np.where(place > 0, np.minimum(moment, intervals[place - 1, 1]) - intervals[place - 1, 0], 0.0)
        return before[np.maximum(place - 1, 0)] + np.maximum(partial, 0.0)

    result: Floats = reached(end_s) - reached(start_s)
    return result
