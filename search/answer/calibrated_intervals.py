"""Intervals of predicted steps and peaks from a calibration, and ranks that it cannot distinguish.

The errors of similar strategies are correlated, so that two rows are compared by the distribution of their difference,
not by their intervals.
"""

import dataclasses
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from forerun.search.board.evidence import OWN_RUNS
from forerun.search.board.rows import R
from forerun.search.request.model_kind import AnyStrategy
from forerun.simulator.calibration import Posterior
from forerun.simulator.calibration.belief import LEVEL
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.table import SplitTable
from forerun.simulator.scoring import table_for
from forerun.spaces.opgraph.mixture import Mixture
from forerun.spaces.strategies import Context, StrategyTable

TOGETHER = 1000
"""Number of rows compared with each other; later rows are compared in groups of this size."""


def with_ranges(context: Context | GraphContext, rows: Sequence[R], *, across_sizes: bool = False) -> tuple[R, ...]:
    """Return ranked rows with intervals of step and peak, and the best indistinguishable rank of each.

    Peaks have an interval only if memory was calibrated. Rows are unchanged in an uncalibrated context.
    ``across_sizes``: rows with different numbers of devices are compared too, by device time, as in a ranking by cost.
    """
    posterior = context.correction
    if not isinstance(posterior, Posterior) or not rows:
        return tuple(rows)
    ranged: list[R] = []
    for start in range(0, len(rows), TOGETHER):
        ranged += _compared(posterior, context, rows[start : start + TOGETHER], across_sizes=across_sizes)
    return tuple(ranged)


def _compared(
    posterior: Posterior, context: Context | GraphContext, rows: Sequence[R], *, across_sizes: bool
) -> list[R]:
    tables = _tables(context, [row.strategy for row in rows])
    belief = posterior.believe([(context, table) for table in tables])
    peaks = None
    if posterior.held is not None and isinstance(context, Context) and isinstance(tables[0], StrategyTable):
        peaks = posterior.held.reach(context, tables[0], LEVEL)
    (faster, slower), equal = belief.reach(LEVEL), belief.alike(LEVEL)
    if not across_sizes:
        gpus = np.array([row.gpus for row in rows])
        equal &= gpus[:, None] == gpus[None, :]
    compared = []
    for place, row in enumerate(rows):
        better = np.flatnonzero(equal[place, :place])
        compared.append(
            dataclasses.replace(
                row if peaks is None else _with_peak_range(row, float(peaks[place])),
                interval_level=LEVEL,
                evidence=OWN_RUNS,
                step_time_low_s=float(row.step_time_s / faster[place]),
                step_time_high_s=float(row.step_time_s * slower[place]),
                same_as_rank=rows[better[0]].rank if len(better) else None,
            )
        )
    return compared


def _tables(context: Context | GraphContext, strategies: Sequence[AnyStrategy]) -> list[StrategyTable | SplitTable]:
    """Return the tables of strategies: one table, or several with mixtures."""
    runs = groupby(enumerate(strategies), lambda one: one[0] if isinstance(one[1], Mixture) else -1)
    return [table_for(context, [strategy for _, strategy in run]) for _, run in runs]


def _with_peak_range(row: R, reach: float) -> R:
    """Return a row with the interval of its peak memory, from the factor to its bounds."""
    return dataclasses.replace(
        row, peak_memory_low_gib=row.peak_memory_gib / reach, peak_memory_high_gib=row.peak_memory_gib * reach
    )
