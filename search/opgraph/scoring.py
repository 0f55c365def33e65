"""Scores many splits and returns rows."""

from collections.abc import Sequence
from dataclasses import replace

from forerun.search.opgraph.bottleneck import bottlenecks
from forerun.search.opgraph.rows import GraphRow, row_of
from forerun.simulator.opgraph import GraphContext, score_splits
from forerun.spaces.opgraph.split import Split


def scored_rows(context: GraphContext, splits: Sequence[Split], batches: Sequence[int]) -> list[GraphRow]:
    """Return a row for every split, each with what holds it up most."""
    if not splits:
        return []
    scores = score_splits(context, splits, batches)
    # What one replica's batch would take on one device, cut into the same segments.
    keys = [(batch // split.replicas, split.segments) for split, batch in zip(splits, batches, strict=True)]
    local = sorted(set(keys))
    serial = score_splits(context, [Split(segments=segments) for _, segments in local], [batch for batch, _ in local])
    serial_s = dict(zip(local, map(float, serial.device_s), strict=True))
    rows = []
    for index, key in enumerate(keys):
        row = row_of(context, scores, index, serial_s[key])
        rows.append(replace(row, bottleneck=bottlenecks(context, row)[0].name))
    return rows
