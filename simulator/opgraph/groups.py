"""Where the groups of a split stand on the links: replicas are outermost, the parts of one replica side by side.

A replica whose parts do not divide a node begins in the middle of one, so that groups of one split may cross different
links: the group that is spread most sets the pace of all.
"""

from collections import Counter
from functools import lru_cache

import numpy as np

from forerun.simulator.costs import stride_of
from forerun.simulator.layouts.price import crossings
from forerun.simulator.opgraph.candidates import Candidates
from forerun.simulator.opgraph.layers import AXES, Floats
from forerun.spaces.clusters.cluster import Level

Ways = tuple[tuple[tuple[int, float], tuple[int, ...]], ...]
"""What one device sends to its neighbours: by distance and share of its link, how many messages along every axis."""


def part_strides(levels: tuple[Level, ...], c: Candidates) -> Floats:
    """Return the spacing of the parts of one replica, by which collectives are costed, per row."""
    return np.array([_part_stride(levels, split.replicas, split.parts) for split in c.splits])


def replica_strides(levels: tuple[Level, ...], c: Candidates) -> Floats:
    """Return the spacing of the devices that hold one part in all replicas, per row."""
    return np.array(
        [
            max(replica_stride(levels, split.replicas, split.parts, part) for part in range(split.parts))
            for split in c.splits
        ]
    )


@lru_cache(maxsize=4096)
def _part_stride(levels: tuple[Level, ...], replicas: int, parts: int) -> float:
    return max(stride_of(levels, range(first, first + parts)) for first in range(0, replicas * parts, parts))


@lru_cache(maxsize=4096)
def replica_stride(levels: tuple[Level, ...], replicas: int, parts: int, part: int) -> float:
    """Return the spacing of the devices that hold one part in all replicas."""
    return stride_of(levels, range(part, replicas * parts, parts))


@lru_cache(maxsize=1024)
def halo_ways(levels: tuple[Level, ...], replicas: int, grid: tuple[int, ...]) -> tuple[Ways, ...]:
    """Return what devices of a picture cut in a ``grid`` send to their neighbours: all different patterns but those
    that another one has more than."""
    places = np.arange(replicas * int(np.prod(grid))).reshape(replicas, *grid)
    pairs, axes = list[tuple[int, int]](), list[int]()
    for axis in range(AXES):
        count = grid[axis]
        low = places.take(range(count - 1), axis=axis + 1).reshape(-1).tolist()
        high = places.take(range(1, count), axis=axis + 1).reshape(-1).tolist()
        pairs += [pair for one, other in zip(low, high, strict=True) for pair in ((one, other), (other, one))]
        axes += [axis] * (2 * len(low))
    sent: dict[int, Counter[tuple[tuple[int, float], int]]] = {}
    for (source, _), axis, way in zip(pairs, axes, crossings(levels, pairs), strict=True):
        sent.setdefault(source, Counter())[way, axis] += 1
    patterns = {tuple(sorted(one.items())): one for one in sent.values()}
    kept = [one for one in patterns.values() if not any(one < other for other in patterns.values())]
    return tuple(_by_way(one) for one in kept)


def _by_way(counts: Counter[tuple[tuple[int, float], int]]) -> Ways:
    found: dict[tuple[int, float], list[int]] = {}
    for (way, axis), count in sorted(counts.items()):
        found.setdefault(way, [0] * AXES)[axis] += count
    return tuple((way, tuple(messages)) for way, messages in found.items())
