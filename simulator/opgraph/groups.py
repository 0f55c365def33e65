"""Placement of a split's groups on the links: replicas are outermost, the parts of one replica are neighbours.

A replica whose number of parts does not divide a node starts inside a node, so groups of one split may cross different
links: the widest group sets the pace of all.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from forerun.simulator.costs.collectives.groups import strides_of
from forerun.simulator.layouts.price import crossing_senders
from forerun.simulator.opgraph.candidates import SplitCandidates
from forerun.simulator.opgraph.layers import AXES, Floats
from forerun.spaces.clusters.cluster import Level
from forerun.spaces.opgraph.split import Split

Ways = tuple[tuple[tuple[int, float], tuple[int, ...]], ...]
"""Messages of one device to its neighbours: by distance and share of its link, their number along every axis."""


def part_strides(levels: tuple[Level, ...], c: SplitCandidates) -> Floats:
    """Return the spacing of the parts of one replica, for the cost of its collectives, per row."""
    return per_shape(c, lambda replicas, parts: _part_stride(levels, distinct_replicas(levels, replicas, parts), parts))


def replica_strides(levels: tuple[Level, ...], c: SplitCandidates) -> Floats:
    """Return the spacing of the devices with one part in all replicas, per row."""
    return per_shape(c, lambda replicas, parts: max(stage_strides(levels, replicas, parts)))


def per_shape(c: SplitCandidates, value: Callable[[int, int], float]) -> Floats:
    """Return a value of every row's replicas and parts, computed once per pair."""
    shapes = np.stack([c.replicas_N, c.parts_N], axis=1).astype(np.int64)
    distinct, which = np.unique(shapes, axis=0, return_inverse=True)
    return np.array([value(*shape) for shape in distinct.tolist()], dtype=np.float64)[which.reshape(-1)]


def distinct_replicas(levels: tuple[Level, ...], replicas: int, parts: int) -> int:
    """Return the number of replicas after which their positions on the links repeat, at most all of them."""
    return min(replicas, math.lcm(parts, *(level.size for level in levels[:-1])) // parts)


@lru_cache(maxsize=4096)
def _part_stride(levels: tuple[Level, ...], replicas: int, parts: int) -> float:
    return float(strides_of(levels, np.arange(replicas * parts).reshape(replicas, parts)).max())


def stage_strides(levels: tuple[Level, ...], replicas: int, parts: int) -> tuple[float, ...]:
    """Return the spacing of the devices with one part in all replicas, for each part."""
    # At least two replicas: one alone has no spacing.
    return _stage_strides(levels, min(replicas, 2 * distinct_replicas(levels, replicas, parts)), parts)


@lru_cache(maxsize=4096)
def _stage_strides(levels: tuple[Level, ...], replicas: int, parts: int) -> tuple[float, ...]:
    return tuple(strides_of(levels, np.arange(replicas * parts).reshape(replicas, parts).T).tolist())


def padded_grid(split: Split) -> tuple[int, ...]:
    """Return the parts of an image along every axis."""
    return (*split.grid, *(1,) * AXES)[:AXES]


def halo_ways(levels: tuple[Level, ...], replicas: int, grid: tuple[int, ...]) -> tuple[Ways, ...]:
    """Return the messages between neighbours of an image cut in a ``grid``: patterns that no other one includes."""
    return _halo_ways(levels, distinct_replicas(levels, replicas, math.prod(grid)), grid)


@lru_cache(maxsize=1024)
def _halo_ways(levels: tuple[Level, ...], replicas: int, grid: tuple[int, ...]) -> tuple[Ways, ...]:
    places = np.arange(replicas * math.prod(grid)).reshape(replicas, *grid)
    ends = []
    for axis in range(AXES):
        low = places.take(range(grid[axis] - 1), axis=axis + 1).reshape(-1)
        high = places.take(range(1, grid[axis]), axis=axis + 1).reshape(-1)
        ends += [(low, high, axis), (high, low, axis)]
    source, target = (np.concatenate([one[end] for one in ends]) for end in (0, 1))
    axis_M = np.concatenate([np.full(len(low), axis) for low, _, axis in ends])
    distance, senders = crossing_senders(levels, source, target)
    ways, way_M = np.unique(distance * (places.size + 1) + senders, return_inverse=True)
    distance, senders = np.divmod(ways, places.size + 1)
    counts = np.zeros((places.size, len(ways), AXES), dtype=np.int64)
    np.add.at(counts, (source, way_M.reshape(-1), axis_M), 1)
    patterns = np.array(list({pattern.tobytes(): pattern for pattern in counts.reshape(places.size, -1)}.values()))
    each = list(zip(distance.tolist(), (senders / distance).tolist(), strict=True))
    less = np.all(patterns[:, None] <= patterns[None], axis=2) & np.any(patterns[:, None] < patterns[None], axis=2)
    return tuple(
        tuple((way, tuple(messages)) for way, messages in zip(each, pattern.tolist(), strict=True) if any(messages))
        for pattern in patterns[~less.any(axis=1)].reshape(-1, len(ways), AXES)
    )
