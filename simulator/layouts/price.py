"""Seconds of inferred transfers, by the same rules of collectives that the vectorised core uses."""

import math
from typing import cast

from forerun.simulator.costs import Collective, collective_time_s, point_to_point_time_s, stride_of
from forerun.simulator.layouts.infer import Transfer
from forerun.spaces.clusters.cluster import Cluster

_RULES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


def transfer_time_s(cluster: Cluster, transfer: Transfer, element_bytes: float) -> float:
    """Return the seconds that all groups of a transfer take, side by side: those of the slowest.

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
    """Return a distance that crosses the same levels of links as the way between the farthest of some devices."""
    inside = 1
    for level in cluster.levels:
        if len({device // level.size for device in members}) == 1:
            return inside
        inside = level.size
    return inside


def _sent_s(cluster: Cluster, size: float, members: tuple[int, ...]) -> float:
    return float(point_to_point_time_s(cluster, size, reach(cluster, members))) if size else 0.0


def _pairs_s(cluster: Cluster, transfer: Transfer, element_bytes: float) -> float:
    """Return the seconds of the busiest port: every device sends and receives one message after the other, at the rate
    of the farthest."""
    port: dict[tuple[str, int], list[float]] = {}
    far: dict[tuple[str, int], int] = {}
    for (source, target), size in zip(transfer.groups, transfer.elements, strict=True):
        distance = reach(cluster, (source, target))
        for key in (("out", source), ("in", target)):
            port.setdefault(key, []).append(size * element_bytes)
            far[key] = max(far.get(key, 1), distance)
    slowest = {(far[key], math.fsum(sizes)) for key, sizes in port.items()}
    return max((float(point_to_point_time_s(cluster, size, distance)) for distance, size in slowest), default=0.0)
