"""Cuts of a pipeline into stages that minimise its longest stage."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from forerun.simulator.opgraph.layers import Floats

PRECISION = 1e-9
"""Relative accuracy of the longest run."""

ROUNDING = 1e-12
"""Share by which a run may exceed a bound: sums of seconds are rounded."""


def balanced_cuts(seconds_L: Floats, parts: int) -> tuple[int, ...]:
    """Cut operators into runs with the shortest possible longest run, and return the first operator of each.

    The number of runs is ``parts``, or the number of operators where this is smaller. Bisection over the longest run:
    each trial fills runs greedily and moves its bound to the nearest value at which another trial would differ. Where
    fewer runs suffice, the runs with most operators are divided in two.
    """
    total = [0.0, *map(float, np.cumsum(seconds_L))]
    low = max(float(seconds_L.max()), total[-1] / parts)
    high = min(low + float(seconds_L.max()), total[-1])  # every run but the last fills at least ``low``
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        starts = _filled(total, middle, parts)
        if len(starts) <= parts:
            high = max(total[end] - total[begin] for begin, end in pairwise([*starts, len(seconds_L)]))
        else:
            low = max(low, min(total[end + 1] - total[begin] for begin, end in pairwise(starts)))
    starts = _filled(total, high, parts)
    while len(starts) < min(parts, len(seconds_L)):
        ends = [*starts[1:], len(seconds_L)]
        begin, end = max(zip(starts, ends, strict=True), key=lambda run: run[1] - run[0])
        starts = sorted([*starts, (begin + end) // 2])
    return tuple(starts)


def _filled(total: Sequence[float], longest_s: float, parts: int) -> list[int]:
    """Fill runs one after the other and return the first operator of each; stop above ``parts`` runs."""
    begin = 0
    starts: list[int] = []
    while begin < len(total) - 1 and len(starts) <= parts:
        starts.append(begin)
        end = bisect_right(total, total[begin] + longest_s * (1 + ROUNDING)) - 1
        begin = max(end, begin + 1)
    return starts
