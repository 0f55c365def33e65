"""Pareto fronts: candidates that no other candidate dominates in all keys."""

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.score_table import Floats


def front(index: NDArray[np.int64], keys: Floats, mask: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the rows of ``mask`` that no other dominates, the best by the first key first.

    Shapes: ``index`` and ``mask`` N, ``keys`` M x N, lower is better. Among rows with equal keys, the one with the
    lowest index stays.
    """
    rows = np.flatnonzero(mask)
    rows = rows[np.lexsort((index[rows], *keys[::-1, rows]))]
    # A row is dominated only by rows before it, so the first remaining row always stays.
    kept = []
    while len(rows):
        kept.append(rows[0])
        rows = rows[np.any(keys[:, rows] < keys[:, rows[:1]], axis=0)]
    return np.asarray(kept, dtype=np.intp)
