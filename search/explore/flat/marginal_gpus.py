"""The number of GPUs up to which another GPU pays."""

from collections.abc import Sequence
from itertools import pairwise

from forerun.search.board.rows import Row

PAYS = 0.5
"""Least gain per added GPU, as a share of the gain per GPU of the smallest row."""


def paying(rows: Sequence[Row]) -> str:
    """Describe the number of GPUs up to which another GPU pays; empty if all rows have the same number."""
    best: dict[int, float] = {}
    for row in rows:
        best[row.gpus] = max(row.throughput, best.get(row.gpus, 0.0))
    counts = sorted(best)
    if len(counts) < 2:
        return ""
    each, last = best[counts[0]] / counts[0], counts[0]
    for below, above in pairwise(counts):
        gained = (best[above] - best[below]) / (above - below)
        if gained < PAYS * each:
            return (
                f"beyond {last:,} GPUs the gain per GPU is below half: from {below:,} to {above:,} each one adds "
                f"{gained / each:.0%} of the throughput per GPU on {counts[0]:,}"
            )
        last = above
    return f"GPUs still add over half of their share of throughput at the largest number searched ({last:,})"
