"""Probability of ending a training in time, from the interval of its step."""

import math
from statistics import NormalDist

from forerun.search.answer.notes.goodput import days_of
from forerun.search.board.rows import AnyRow

SURE = 0.8
"""Probability of ending in time from which a number of GPUs is enough."""
_NORMAL = NormalDist()


def probability_in_time(row: AnyRow, days: float) -> float | None:
    """Compute the probability that a training ends within some days, with failures if they were predicted.

    Steps are log-normal, with the row's interval. The result is None if the length of the training or the interval is
    unknown.
    """
    spread = _spread(row)
    if spread is None or not days_of(row):
        return None
    bias, sigma = spread
    late = math.log(days / days_of(row)) - bias
    return _NORMAL.cdf(late / sigma) if sigma else float(late >= 0)


def sure_days(row: AnyRow) -> float:
    """Return the days within which a training ends with probability ``SURE``.

    Without an interval these are the predicted days.
    """
    spread = _spread(row)
    if spread is None:
        return days_of(row)
    bias, sigma = spread
    return days_of(row) * math.exp(bias + _NORMAL.inv_cdf(SURE) * sigma)


def _spread(row: AnyRow) -> tuple[float, float] | None:
    """Return the mean and deviation of the logarithm of measured over predicted steps."""
    low, high, level = row.step_time_low_s, row.step_time_high_s, row.interval_level
    if low is None or high is None or level is None or not low > 0:
        return None
    ends = math.log(low / row.step_time_s), math.log(high / row.step_time_s)
    return sum(ends) / 2, (ends[1] - ends[0]) / (2 * _NORMAL.inv_cdf((1 + level) / 2))
