"""Rows with their intervals: from the user's measured runs, else from similar published runs."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from forerun.search.answer.evidence import evidence_of
from forerun.search.board.rows import GIB, PLAUSIBLE_MFU, R
from forerun.search.measured.intervals import LEVEL, Peaks, busy_share, error_interval, unchecked_gain
from forerun.spaces.strategies import Context, Strategy

if TYPE_CHECKING:
    from forerun.simulator.opgraph import GraphContext


def certain(context: "Context | GraphContext", rows: tuple[R, ...], objective: str | None = None) -> tuple[R, ...]:
    """Return rows with the intervals of their step time and peak memory.

    In a calibrated context rows also have the best rank from which they cannot be distinguished.

    Rows of different numbers of devices are compared only if ``objective`` ranks by cost.
    """
    if not rows:
        return rows
    if context.correction is None:  # the published runs with residuals are of transformers
        return _published(context, rows) if isinstance(context, Context) else rows
    from forerun.search.answer.calibrated_intervals import with_ranges

    return with_ranges(context, rows, across_sizes=objective == "cost")


def _published(context: Context, rows: tuple[R, ...]) -> tuple[R, ...]:
    """Return rows with the intervals from published runs."""
    strategies = [row.strategy for row in rows if isinstance(row.strategy, Strategy)]
    busy = busy_share({part: np.array([row.breakdown_s[part] for row in rows]) for part in rows[0].breakdown_s})
    peaks = Peaks(peak_bytes=np.array([row.peak_memory_gib * GIB for row in rows]))
    step, peak = error_interval(context, strategies, busy), error_interval(context, strategies, busy, peaks)
    step = step.with_unchecked(unchecked_gain(context, strategies))
    step = step.with_implausible(np.array([row.mfu / PLAUSIBLE_MFU[context.moe] for row in rows]))
    evidence = evidence_of(context)
    return tuple(
        dataclasses.replace(
            row,
            interval_level=LEVEL,
            evidence=evidence,
            step_time_low_s=row.step_time_s * float(step.low[place]),
            step_time_high_s=row.step_time_s * float(step.high[place]),
            peak_memory_low_gib=row.peak_memory_gib * float(peak.low[place]),
            peak_memory_high_gib=row.peak_memory_gib * float(peak.high[place]),
        )
        for place, row in enumerate(rows)
    )
