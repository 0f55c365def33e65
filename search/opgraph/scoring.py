"""Scores many splits and returns rows."""

from collections.abc import Sequence
from dataclasses import replace

from forerun.search.opgraph.bottleneck import bottlenecks
from forerun.search.opgraph.rows import GraphRow, row_of
from forerun.simulator.opgraph import GraphContext, score_splits
from forerun.spaces.divisors import divisors
from forerun.spaces.opgraph.split import Mode, Split


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


def in_segments(context: GraphContext, rows: Sequence[GraphRow]) -> list[GraphRow]:
    """Return rows of what does not fit at once in as few segments as the memory needs, at least doubling them, or one
    sample at a time where nothing does; pipelines have their segments already. Splits with a row that fits are left
    alone."""
    known: dict[tuple[Split, int], list[GraphRow]] = {}
    for row in rows:
        if row.split.mode is not Mode.PIPELINE:
            known.setdefault((replace(row.split, segments=1), row.global_batch), []).append(row)
    waiting = {
        key: max(row.split.segments for row in own) for key, own in known.items() if not any(row.fits for row in own)
    }
    found: list[GraphRow] = []
    while waiting:
        more = {key: _next(key[1] // key[0].replicas, 2 * most) for key, most in waiting.items()}
        tried = {key: segments for key, segments in more.items() if segments is not None}
        splits = [replace(split, segments=segments) for (split, _), segments in tried.items()]
        scored = scored_rows(context, splits, [batch for _, batch in tried])
        waiting = {}
        for (key, segments), row in zip(tried.items(), scored, strict=True):
            if row.fits or segments == key[1] // key[0].replicas:  # or one sample at a time, the leanest there is
                found.append(row)
            else:
                waiting[key] = segments
    return found


def _next(samples: int, least: int) -> int | None:
    """Return the fewest segments, at least ``least``, that divide some samples."""
    return next((number for number in divisors(samples) if number >= least), None)
