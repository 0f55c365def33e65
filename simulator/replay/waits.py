"""Waits inferred from the gaps on lanes.

A trace names the launch of a kernel, but not the waits of a host or a stream. Waits are inferred: a gap during which
another lane of the same rank was busy almost to its end was a wait for that lane. Gaps shorter than ``LEAST_S`` are not
changed.
"""

import numpy as np

from forerun.simulator.replay.trace import LATE, LEAST_S, MESSAGES, Floats, Integers, Place, RankTrace

_COVERED = 0.5
"""Share of a gap that must have passed at the other lane's end."""


def inferred_waits(trace: RankTrace, start_s: Floats, end_s: Floats) -> dict[int, list[int]]:
    """Return, by span, the spans on other lanes that it waited for.

    Ends of messages that the host recorded late are moved, in ``end_s``, before the span that they start.
    """
    waits: dict[int, list[int]] = {}
    place_of = np.array([int(place) for place in trace.places], dtype=np.int64)[trace.lane]
    moving = np.isin(trace.kind, MESSAGES)
    for lane, place in enumerate(trace.places):
        spans = np.flatnonzero(trace.lane == lane)
        if not len(spans) or place == Place.NETWORK:
            continue
        if place == Place.HOST:
            others = (place_of == Place.HOST) | (place_of == Place.NETWORK) & moving
        else:
            others = place_of == Place.DEVICE
        others &= trace.lane != lane
        _explain(trace, spans, np.flatnonzero(others), start_s, end_s, waits)
        if place == Place.HOST:
            _device_waits(spans, np.flatnonzero(place_of == Place.DEVICE), trace, start_s, end_s, waits)
    return waits


def _explain(
    trace: RankTrace, spans: Integers, others: Integers, start_s: Floats, end_s: Floats, waits: dict[int, list[int]]
) -> None:
    """Find the gaps of one lane that other lanes explain."""
    if not len(others):
        return
    others = others[np.argsort(end_s[others], kind="stable")]
    ends = end_s[others]
    # A span may start at r = max(end of the preceding span of its lane, end of its launch); the gap to be explained
    # lasts from r to its start s. -inf: the trace shows neither.
    before_s = np.concatenate([[-np.inf], end_s[spans[:-1]]])
    launched = np.where(trace.cause[spans] >= 0, end_s[trace.cause[spans]], -np.inf)
    ready_s = np.maximum(before_s, launched)
    for place in np.flatnonzero((start_s[spans] - ready_s > LEAST_S) & ~trace.synced[spans]).tolist():
        span, low, high = int(spans[place]), float(ready_s[place]), float(start_s[spans[place]])
        if low == -np.inf and launched[place] == -np.inf and trace.places[int(trace.lane[span])] != Place.HOST:
            continue
        # Of the spans on other lanes, sorted by end e, the last with e <= s is the awaited one, if the wait is most of
        # the gap: e - r >= _COVERED (s - r).
        ended = int(np.searchsorted(ends, high, side="right"))
        late = _late(others[ended : ended + 8], trace, high, low, start_s, end_s)
        if late:
            end_s[late] = high
            waits.setdefault(span, []).extend(late)
        if not ended:
            continue
        last = int(others[ended - 1])
        covered = low == -np.inf or end_s[last] - low >= _COVERED * (high - low)
        if end_s[last] > low and covered:
            waits.setdefault(span, []).append(last)


def _late(after: Integers, trace: RankTrace, high: float, low: float, start_s: Floats, end_s: Floats) -> list[int]:
    """Return messages recorded as ended just after ``high`` for which the gap before it waited."""
    return [
        int(other)
        for other in after
        if trace.kind[other] in MESSAGES
        and start_s[other] < (low + high) / 2
        and high - low > 10 * LEAST_S
        and end_s[other] - high < LATE * (end_s[other] - start_s[other])
    ]


def _device_waits(
    spans: Integers, kernels: Integers, trace: RankTrace, start_s: Floats, end_s: Floats, waits: dict[int, list[int]]
) -> None:
    """Let a span after a call that waits for the device wait for the last kernel that ended during the call."""
    if not len(kernels):
        return
    kernels = kernels[np.argsort(end_s[kernels], kind="stable")]
    ends = end_s[kernels]
    for place in np.flatnonzero(trace.synced[spans]).tolist():
        span = int(spans[place])
        low = float(end_s[spans[place - 1]]) if place else -np.inf
        ended = int(np.searchsorted(ends, float(start_s[span]), side="right"))
        if ended and ends[ended - 1] > low:
            waits.setdefault(span, []).append(int(kernels[ended - 1]))
