"""Limits on the duration or the cost of a whole training.

With a known number of tokens both are bounds on the seconds and the device-seconds of one step.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.search.request.model_kind import Table
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.errors import RequestError
from forerun.spaces.workload import Workload

SECONDS_PER_HOUR = 3600.0
TOO_LATE, TOO_DEAR = "deadline", "money"
"""Reasons for rejecting candidates that fit in memory, for the counts in ``SliceResult.rejected``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLimits:
    """Largest seconds and device-seconds of one step; infinite without a limit."""

    step_s: float = math.inf
    device_s: float = math.inf

    def kept(self, scores: ScoreTable, table: Table) -> tuple[NDArray[np.bool_], Mapping[str, int]]:
        """Return a mask (N) of fitting candidates within the limits, and the number of others by reason."""
        in_time = scores.step_time_s <= self.step_s
        paid = scores.step_time_s * table.column("gpus") <= self.device_s
        too_long = int(np.count_nonzero(scores.fits & ~in_time))
        too_expensive = int(np.count_nonzero(scores.fits & in_time & ~paid))
        counts = {reason: count for reason, count in ((TOO_LATE, too_long), (TOO_DEAR, too_expensive)) if count}
        return scores.fits & in_time & paid, counts


NO_LIMITS = TrainingLimits()


def limits_of(
    workload: Workload, *, within_s: float | None, usd: float | None, usd_per_gpu_hour: float | None
) -> TrainingLimits:
    """Return the limits on a step of a training of at most ``within_s`` seconds and ``usd``.

    Raises
    ------
    RequestError
        The length of the training or the price of a device is unknown.
    """
    if within_s is None and usd is None:
        return NO_LIMITS
    if workload.tokens is None:
        raise RequestError("a limit on the whole training needs its length; add --tokens, like --tokens 2T")
    steps = workload.tokens / workload.tokens_per_step
    device_s = math.inf
    if usd is not None:
        if usd_per_gpu_hour is None:
            raise RequestError("a training within a sum of money needs a price; add --usd-per-gpu-hour")
        device_s = usd / usd_per_gpu_hour * SECONDS_PER_HOUR / steps
    return TrainingLimits(step_s=math.inf if within_s is None else within_s / steps, device_s=device_s)
