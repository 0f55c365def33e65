"""A global batch nearby that splits better: what the replicas of most strategies must divide."""

import dataclasses
from collections.abc import Sequence

from forerun.search.board.rows import Row
from forerun.search.flat.best import best_row
from forerun.search.notes.safer import LARGEST
from forerun.search.request.request import Setting
from forerun.search.request.scorer import Scorer

NEARBY = 0.05
"""Share of the batch by which another may differ: a training hardly tells them apart."""
WORTH = 0.05
"""Gain in tokens per second from which another batch is named: what it takes to be surer than a prediction's error."""
OBJECTIVES = ("throughput", "cost")


def rounder_note(setting: Setting, rows: Sequence[Row], score: Scorer) -> tuple[str, ...]:
    """Return as one note how much faster the nearby batch is that most powers of two divide; none where the batch is
    that one, where it gains little, or where finding it would take long. ``rows`` are in rank order.
    """
    batch = setting.context.workload.global_batch
    rounder = rounder_batch(batch)
    if rounder == batch or not rows or setting.objective not in OBJECTIVES or setting.space().size > LARGEST:
        return ()
    workload = dataclasses.replace(setting.context.workload, global_batch=rounder)
    other = dataclasses.replace(setting, context=dataclasses.replace(setting.context, workload=workload))
    found = best_row(other, limits=setting.limits, score=score)
    if found is None:
        return ()
    gain = found.tokens_per_s_per_gpu / rows[0].tokens_per_s_per_gpu - 1
    if gain < WORTH:
        return ()
    return (
        f"few splits divide a global batch of {batch}; with {rounder} the best trains {gain:.0%} more tokens per "
        f"second and GPU: {found.name} on {found.gpus} GPUs",
    )


def rounder_batch(batch: int) -> int:
    """Return the batch within ``NEARBY`` of one that the largest power of two divides, the nearest of those.

    >>> [rounder_batch(batch) for batch in (97, 127, 500, 512, 1000, 3)]
    [96, 128, 512, 512, 1024, 3]
    """
    reach = int(NEARBY * batch)
    low, high = max(1, batch - reach), batch + reach
    power = 1 << high.bit_length()
    while high // power * power < low:
        power //= 2
    # The nearest of its multiples; the larger of two that are as near.
    below, above = batch // power * power, -(-batch // power) * power
    return min((n for n in (above, below) if low <= n <= high), key=lambda n: abs(n - batch))
