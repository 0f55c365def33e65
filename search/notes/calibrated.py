"""How sure rows are: the interval of every predicted step and peak, and which rows cannot be told apart.

The errors of similar strategies are correlated, so that two rows are compared by the belief about their difference and
not by their intervals.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from forerun.search.board.rows import Row
from forerun.simulator.calibration import Posterior
from forerun.simulator.calibration.belief import LEVEL
from forerun.spaces.strategies import Context, table_of

TOGETHER = 1000
"""Rows that are compared with each other; further ones only among themselves."""


def with_certainty(context: Context, rows: Sequence[Row], *, across_sizes: bool = False) -> tuple[Row, ...]:
    """Return ranked rows with the interval of their step time and the best rank each cannot be told apart from, and
    with that of their peak memory where it was calibrated.

    Rows are as they were where the context was not calibrated. ``across_sizes``: rows of different numbers of devices
    are compared too (by device time), as a ranking by cost does.
    """
    posterior = context.correction
    if not isinstance(posterior, Posterior) or not rows:
        return tuple(rows)
    found: list[Row] = []
    for start in range(0, len(rows), TOGETHER):
        found += _told(posterior, context, rows[start : start + TOGETHER], across_sizes=across_sizes)
    return tuple(found)


def _told(posterior: Posterior, context: Context, rows: Sequence[Row], *, across_sizes: bool) -> list[Row]:
    table = table_of([row.strategy for row in rows])
    belief = posterior.believe([(context, table)])
    peaks = None if posterior.held is None else posterior.held.reach(context, table, LEVEL)
    (faster, slower), alike = belief.reach(LEVEL), belief.alike(LEVEL)
    if not across_sizes:
        gpus = np.array([row.gpus for row in rows])
        alike &= gpus[:, None] == gpus[None, :]
    found = []
    for place, row in enumerate(rows):
        better = np.flatnonzero(alike[place, :place])
        found.append(
            dataclasses.replace(
                row if peaks is None else _holding(row, float(peaks[place])),
                interval_level=LEVEL,
                step_time_low_s=float(row.step_time_s / faster[place]),
                step_time_high_s=float(row.step_time_s * slower[place]),
                same_as_rank=rows[better[0]].rank if len(better) else None,
            )
        )
    return found


def _holding(row: Row, reach: float) -> Row:
    """Return a row with the interval of its peak memory, from the factor to its bounds."""
    return dataclasses.replace(
        row, peak_memory_low_gib=row.peak_memory_gib / reach, peak_memory_high_gib=row.peak_memory_gib * reach
    )
