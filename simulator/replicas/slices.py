"""Spacing of the replicas that share one set of slices, and of the copies of these slices.

Replicas of a stage are ``replica_stride`` devices apart. Where only some replicas share sharded states, the sharing
replicas are neighbours and may be closer to each other than the copies of their slices, which are all-reduced over the
network.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.score_table import Floats
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.strategies import Context, Placement, Strategy

_LINE_RATE = 1e9
"""Factor on all links at which only the latency of a collective remains."""


def line_rate_cluster(context: Context, strategy: Strategy) -> Cluster:
    """Return a cluster on which a reduction over replicas takes only its latency and near part (``gathers_near``)."""
    cluster = context.cluster
    beyond = _sharing_level(cluster, strategy) + 1 if reduces_in_two_levels(context, strategy) else 0
    fast = range(beyond, len(cluster.levels))
    levels = tuple(
        replace(
            level,
            bytes_per_s=level.bytes_per_s * (_LINE_RATE if number in fast else 1.0),
            port_bytes_per_s=level.port_bytes_per_s * (_LINE_RATE if number in fast else 1.0),
        )
        for number, level in enumerate(cluster.levels)
    )
    return replace(cluster, levels=levels, measured=None)


def gathers_near(context: Context, strategy: Strategy) -> bool:
    """Check whether replicas that share slices of parameters are closer to each other than copies of these slices.

    In this case gathers do not use the links over which copies are all-reduced.
    """
    levels = context.cluster.levels
    return strategy.copies > 1 and _sharing_level(context.cluster, strategy) < len(levels) - 1


def reduces_in_two_levels(context: Context, strategy: Strategy) -> bool:
    """Check whether gradients leave near links only between copies of slices."""
    return gathers_near(context, strategy) and not context.framework.reduces_whole


def share_port(
    cluster: Cluster, *, tp: Floats, cp: Floats, dp: Floats, pp: Floats, near: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Check whether the next stage and the replicas of a stage are reached over links of the same level, shape N.

    ``near``: stages, not replicas, are neighbours in device numbering.
    """
    inner = tp * cp
    farthest = inner * dp * np.where(near, pp, 1.0)
    next_stage = inner * np.where(near, 1.0, dp) + 1
    sizes = [float(level.size) for level in cluster.levels]
    reached = [np.searchsorted(sizes, devices) for devices in (next_stage, farthest)]
    return np.asarray((pp > 1) & (dp * cp > 1) & (reached[0] == reached[1]))


def _sharing_level(cluster: Cluster, strategy: Strategy) -> int:
    """Return the number of the innermost level with room for replicas that share one set of slices."""
    stride = replica_stride(strategy)
    sizes = [level.size // stride for level in cluster.levels[:-1]]
    return next((number for number, size in enumerate(sizes) if size >= strategy.sharing), len(sizes))


def replica_stride(strategy: Strategy) -> int:
    """Return the distance between neighbouring replicas."""
    return strategy.tp * (strategy.pp if strategy.placement == Placement.TP_CP_EP_PP_DP else 1)
