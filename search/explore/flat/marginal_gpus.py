"""Up to which number of GPUs another one pays."""

from collections.abc import Sequence
from itertools import pairwise

from forerun.search.board.rows import Row

PAYS = 0.5
"""A GPU pays while it brings at least this share of what the GPUs of the smallest row bring each."""


def paying(rows: Sequence[Row]) -> str:
    """Return in words up to which number of GPUs another one pays; empty where the rows have one number only."""
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
