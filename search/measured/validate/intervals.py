"""Intervals of the predicted steps and peaks of measured runs."""

from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from forerun.search.measured.intervals import LEVEL, Peaks, busy_share, error_interval, unchecked_gain
from forerun.search.measured.validate.predict import Predictions
from forerun.simulator import TIME_PARTS
from forerun.simulator.calibration import Posterior
from forerun.simulator.scoring import table_for
from forerun.spaces.strategies import Context, by_context, table_of

Floats = NDArray[np.float64]
GUESSED = {"recompute", "recompute_layers"}
"""Rules that fill in a recompute which the run may not have used."""
ASSUMED = {"strategy", "imbalance"}
"""Rules for a strategy or balance of experts that the run may not have had."""
ASSUMED_ERROR = 0.3
"""Half width that these rules add: seven of ten errors of 40 such runs, of two tables, are smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Bounds that contain the measurement with probability ``LEVEL``, for every run; NaN without a prediction.

    ``low_s``, ``high_s``: bounds of the step; ``memory_low_bytes``, ``memory_high_bytes``: bounds of the peak, of the
    measured kind.
    """

    low_s: Floats
    high_s: Floats
    memory_low_bytes: Floats
    memory_high_bytes: Floats


def intervals_of(predictions: Predictions) -> Intervals:
    """Return the intervals of all runs; calibrated runs have the intervals of their posterior."""
    low, high, memory_low, memory_high = np.full((4, len(predictions.runs)), np.nan)
    times = {part: predictions.time_s[part] for part in TIME_PARTS if part in predictions.time_s}
    busy = busy_share(times) if len(times) == len(TIME_PARTS) else low
    for rows in by_context(predictions.runs, np.flatnonzero(predictions.predicted)):
        context, strategies = predictions.runs[rows[0]].context, [predictions.runs[row].strategy for row in rows]
        posterior, table = context.correction, table_for(context, strategies)
        if isinstance(posterior, Posterior):
            faster, slower = posterior.believe([(context, table)]).reach(LEVEL)
            low[rows], high[rows] = 1 / faster, slower
        if not isinstance(context, Context):  # residuals of published runs are of transformers
            continue
        guessed = [bool(GUESSED & set(predictions.runs[row].filled)) for row in rows]
        readings = np.array([predictions.runs[row].memory_kind for row in rows])
        for reading in np.unique(readings):
            chosen = readings == reading
            members = np.array(rows)[chosen]
            peaks = Peaks(peak_bytes=predictions.comparable_memory_bytes[members], reading=str(reading))
            filled = [guessed[place] for place in np.flatnonzero(chosen)]
            interval = error_interval(context, list(compress(strategies, chosen)), busy[members], peaks, filled)
            memory_low[members], memory_high[members] = interval.low, interval.high
        if not isinstance(posterior, Posterior):
            step = error_interval(context, strategies, busy[rows], guessed=guessed)
            assumed = np.array([bool(ASSUMED & set(predictions.runs[row].filled)) for row in rows])
            step = step.with_unchecked(unchecked_gain(context, strategies)).widened(assumed * ASSUMED_ERROR)
            low[rows], high[rows] = step.low, step.high
        elif posterior.held is not None:
            reach = posterior.held.reach(context, table_of(strategies), LEVEL)
            memory_low[rows], memory_high[rows] = 1 / reach, reach
    return Intervals(
        low_s=low * predictions.step_time_s,
        high_s=high * predictions.step_time_s,
        memory_low_bytes=memory_low * predictions.comparable_memory_bytes,
        memory_high_bytes=memory_high * predictions.comparable_memory_bytes,
    )
