"""Seconds of inferred transfers, by the collective rules of the vectorised core."""

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.simulator.costs import Collective, collective_time_s, point_to_point_time_s, stride_of
from forerun.simulator.layouts.infer import Transfer
from forerun.spaces.clusters.cluster import Cluster, Level

Floats = NDArray[np.float64]
_RULES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


def transfer_time_s(cluster: Cluster, transfer: Transfer, element_bytes: float) -> float:
    """Return the seconds of a transfer whose groups run in parallel, set by the slowest group.

    Raises:
        RequestError: the cluster has no links, or a kind of link without constants.
    """
    if transfer.kind in _RULES:
        distinct = {
            (len(group), stride_of(cluster.levels, group), size)
            for group, size in zip(transfer.groups, transfer.elements, strict=True)
        }
        kind = cast(Collective, transfer.kind)
        return max(
            float(collective_time_s(cluster, kind, size * element_bytes, ranks, stride))
            for ranks, stride, size in distinct
        )
    if transfer.kind in ("scatter", "gather"):
        return max(
            _sent_s(cluster, size * element_bytes * (1 - 1 / len(group)), group)
            for group, size in zip(transfer.groups, transfer.elements, strict=True)
        )
    return _pairs_s(cluster, transfer, element_bytes)


def reach(cluster: Cluster, members: tuple[int, ...]) -> int:
    """Return a distance that crosses the same levels of links as the route between the farthest of some devices."""
    inside = 1
    for level in cluster.levels:
        if len({device // level.size for device in members}) == 1:
            return inside
        inside = level.size
    return inside


def _sent_s(cluster: Cluster, size: float, members: tuple[int, ...]) -> float:
    return float(point_to_point_time_s(cluster, size, reach(cluster, members))) if size else 0.0


def crossings(levels: Sequence[Level], pairs: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
    """Return the distance and the load of every pair (sender, receiver).

    The distance crosses the same levels; the load is the share of the devices behind the crossed link that send over it
    at the same time.
    """
    distance, share = crossings_of(levels, *np.array(pairs, dtype=np.int64).reshape(-1, 2).T)
    return list(zip(distance.tolist(), share.tolist(), strict=True))


def crossings_of(
    levels: Sequence[Level], source: NDArray[np.int64], target: NDArray[np.int64], case: NDArray[np.int64] | int = 0
) -> tuple[NDArray[np.int64], Floats]:
    """Compute ``crossings`` for arrays of senders and receivers; only pairs of one ``case`` send at the same time."""
    distance, senders = crossing_senders(levels, source, target, case)
    return distance, senders / distance


def crossing_senders(
    levels: Sequence[Level], source: NDArray[np.int64], target: NDArray[np.int64], case: NDArray[np.int64] | int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distances as ``crossings_of``, and the number of devices that send over each crossed link."""
    crossed = np.full(len(source), max(len(levels) - 1, 0))
    for number, level in reversed(list(enumerate(levels[:-1]))):
        crossed[source // level.size == target // level.size] = number
    sizes = np.array([1, *(level.size for level in levels[:-1])])
    distance = sizes[crossed]
    many = int(source.max(initial=0)) + 1
    group = (case * max(len(levels), 1) + crossed) * many + source // distance
    # Every sender counts once for each link that it uses.
    senders = np.unique(group * many + source) // many
    links, count = np.unique(senders, return_counts=True)
    return distance, count[np.searchsorted(links, group)]


def sent_s(cluster: Cluster, size: ArrayLike, distance: ArrayLike, share: ArrayLike) -> Floats:
    """Compute the seconds of messages of ``size`` bytes over some distance.

    A fraction ``share`` of the devices behind a link use it at once and share its bandwidth; each has at most the rate
    of one port.
    """
    bytes_sent = np.asarray(size, dtype=np.float64)
    alone = point_to_point_time_s(cluster, bytes_sent, distance, lone=True)
    return np.maximum(alone, point_to_point_time_s(cluster, bytes_sent * np.asarray(share), distance))


def _pairs_s(cluster: Cluster, transfer: Transfer, element_bytes: float) -> float:
    """Return the seconds of the busiest port: every device sends and receives one message after the other."""
    pairs = cast(Sequence[tuple[int, int]], transfer.groups)
    port: dict[tuple[str, int], dict[tuple[int, float], float]] = {}
    for (source, target), size, way in zip(pairs, transfer.elements, crossings(cluster.levels, pairs), strict=True):
        for key in (("out", source), ("in", target)):
            sent = port.setdefault(key, {})
            sent[way] = sent.get(way, 0.0) + size * element_bytes
    slowest = {tuple(sorted(sent.items())) for sent in port.values()}
    times = {one: float(sent_s(cluster, one[1], *one[0])) for sent in slowest for one in sent}
    return max((math.fsum(times[one] for one in sent) for sent in slowest), default=0.0)
