"""The cost rule of communication: seconds of a collective on the links of a cluster."""

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from forerun.simulator.costs.collectives import algorithms
from forerun.simulator.costs.collectives.algorithms import LevelPath
from forerun.simulator.costs.collectives.constants import PROTOCOLS, LinkConstants, Table, constants_of
from forerun.simulator.costs.collectives.groups import Floats, spans
from forerun.spaces.clusters.cluster import Cluster, Level
from forerun.spaces.clusters.spec import NETWORK_KINDS
from forerun.spaces.errors import RequestError, unknown

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
COLLECTIVES: tuple[str, ...] = get_args(Collective)


def collective_time_s(
    cluster: Cluster,
    collective: Collective,
    full_bytes: ArrayLike,
    ranks: ArrayLike,
    stride: ArrayLike = 1,
    *,
    lone: bool = False,
) -> Floats:
    """Seconds of ``collective`` over a group of ``ranks`` devices spaced ``stride`` apart; arguments broadcast.

    ``full_bytes``: size of the entire tensor: all_reduce and broadcast, bytes per rank; all_gather and reduce_scatter,
    bytes of the gathered or unreduced tensor; all_to_all, bytes of each rank before it; send_recv, bytes from each rank
    to the next. All devices are assumed to work in parallel groups of the same kind, so the members of a node share its
    NICs; ``lone=True``: one group works alone, and its members use idle links up to an entire port each. One rank costs
    exactly 0.

    Raises
    ------
    RequestError
        The collective is unknown, a kind of link has no constants, or the cluster has no links.
    """
    if collective not in COLLECTIVES:
        raise unknown("collective", collective, COLLECTIVES)
    if not cluster.collectives and collective != "send_recv":
        return _by_pairs_s(cluster, collective, full_bytes, ranks, stride, lone=lone)
    where = (cluster.levels, cluster.device.architecture)
    if cluster.measured is None:
        return time_on_levels_s(*where, collective, full_bytes, ranks, stride, lone=lone, known=None)

    def surface(size: ArrayLike, count: ArrayLike, step: ArrayLike) -> Floats:
        return time_on_levels_s(*where, collective, size, count, step, lone=lone, known=None)

    shape = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (full_bytes, ranks, stride)))
    sent = collective == "send_recv"
    leaves = shape[2] >= cluster.devices_per_node if sent else shape[1] * shape[2] > cluster.devices_per_node
    near_s, far_s = (
        cluster.measured.seconds(f"{collective} {place}", tuple(shape), surface) for place in ("node", "network")
    )
    return np.where(shape[1] > 1.0, np.where(leaves, far_s, near_s), 0.0)


def _by_pairs_s(
    cluster: Cluster, collective: str, full_bytes: ArrayLike, ranks: ArrayLike, stride: ArrayLike, *, lone: bool
) -> Floats:
    """Return the seconds as ``collective_time_s``, without a library of collectives.

    Every device sends each other device the data that it needs, in sequence: for a scattered sum its part, for an
    all-reduced sum the entire tensor.
    """
    size, count, step = np.broadcast_arrays(
        *(np.asarray(value, dtype=np.float64) for value in (full_bytes, ranks, stride))
    )
    each = size if collective in ("all_reduce", "broadcast") else size / np.maximum(count, 1.0)
    near = np.minimum(count, np.maximum(cluster.devices_per_node // step, 1.0)) - 1.0
    outside = np.maximum(step * (count - 1.0), cluster.devices_per_node)
    inside_s = point_to_point_time_s(cluster, each, step, lone=lone)
    outside_s = np.where(count - 1.0 > near, point_to_point_time_s(cluster, each, outside, lone=lone), 0.0)
    return np.where(count > 1.0, near * inside_s + (count - 1.0 - near) * outside_s, 0.0)


def time_on_levels_s(
    levels: tuple[Level, ...],
    architecture: str,
    collective: str,
    full_bytes: ArrayLike,
    ranks: ArrayLike,
    stride: ArrayLike,
    *,
    lone: bool,
    known: Table | None,
) -> Floats:
    """Return the seconds as ``collective_time_s``, on bare levels and with the constants ``known`` (for the fit)."""
    size, count, step = np.broadcast_arrays(
        np.asarray(full_bytes, dtype=np.float64),
        np.asarray(ranks, dtype=np.float64),
        np.asarray(stride, dtype=np.float64),
    )
    if not np.any(count > 1.0):
        return np.zeros_like(size)
    if not levels:
        raise RequestError(f"{collective} over {int(count.max())} ranks needs links; this cluster is one device")
    rows = tuple(constants_of(level, architecture, known) for level in levels)
    if collective == "send_recv":
        return np.where(count > 1.0, _send_s(levels, rows, size, step, lone=lone), 0.0)
    paths = paths_on_levels(levels, rows, count, step, lone=lone)
    match collective:
        case "all_reduce":
            time_s = algorithms.ring_s(paths, collective, size, count, 2)
            if len(paths) > 1 or levels[0].kind in NETWORK_KINDS:
                time_s = np.minimum(time_s, algorithms.tree_s(paths, size, count))
            time_s = np.minimum(time_s, algorithms.in_switch_s(paths, size, count))
        case "all_to_all":
            time_s = algorithms.exchange_s(paths, size, count)
        case "broadcast":
            time_s = algorithms.broadcast_s(paths, size, count)
        case _:
            time_s = algorithms.ring_s(paths, collective, size, count, 1)
    return np.where(count > 1.0, time_s, 0.0)


def paths_on_levels(
    levels: tuple[Level, ...], rows: tuple[LinkConstants, ...], ranks: Floats, stride: Floats, *, lone: bool
) -> tuple[LevelPath, ...]:
    """Return the use of every level by groups of ``ranks`` devices ``stride`` apart, innermost first."""
    paths: list[LevelPath] = []
    inside, outer, near = 1, 1, np.ones_like(ranks)
    for level, row, span in zip(levels, rows, spans(levels, ranks, stride), strict=True):
        # The levels of a network start with the same links: the NICs of a node.
        if level.kind not in NETWORK_KINDS or not paths or paths[-1].level.kind not in NETWORK_KINDS:
            outer, near = inside, span.inside
        if row.between_sockets and paths and paths[-1].level.name == "socket" and level.name == "node":
            row = replace(row, efficiency={**row.efficiency, **row.between_sockets})
        # In groups that do not fill their sub-groups, members in the last sub-group have most peers elsewhere.
        last = np.mod(ranks, span.inside)
        alone = np.where(last > 0, last, span.inside)
        reached = (ranks if level.kind in NETWORK_KINDS else span.inside * span.joined) - alone
        paths.append(
            LevelPath(
                level=level,
                constants=row,
                span=span,
                inner_size=inside if lone else None,
                below=outer * (span.inside / near),
                crossing=np.asarray(reached * span.used),
                crowd=np.where(span.used, span.inside * span.joined / near, 1.0),
            )
        )
        inside = level.size
    return tuple(paths)


def point_to_point_time_s(
    cluster: Cluster, message_bytes: ArrayLike, stride: ArrayLike = 1, *, lone: bool = False
) -> Floats:
    """Seconds to send ``message_bytes`` to the device at distance ``stride``, one port per sender; arguments broadcast.

    All devices send at once unless ``lone``. The innermost level with both ends carries the message.
    """
    return collective_time_s(cluster, "send_recv", message_bytes, 2, stride, lone=lone)


def _send_s(
    levels: tuple[Level, ...], rows: tuple[LinkConstants, ...], size: Floats, stride: Floats, *, lone: bool
) -> Floats:
    time_s = np.full_like(size, np.inf)
    for level, row in reversed(list(zip(levels, rows, strict=True))):
        port = level.port_bytes_per_s
        if not (lone or row.mesh):
            port = min(port, level.bytes_per_s)
        steps_s = row.steps_s(level.latency_s)
        here = np.minimum.reduce(
            [
                row.base_s[p] + steps_s[p] + size / (port * row.efficiency["send_recv"] * row.fraction[p])
                for p in range(len(PROTOCOLS))
            ]
        )
        reached = np.isinf(time_s) if level is levels[-1] else stride < level.size
        time_s = np.where(reached, here, time_s)
    return time_s
