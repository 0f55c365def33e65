"""Rings of gradients and of parts on common ports: each ring gets its max-min share.

The rule for collectives assumes that all devices of a node exchange at once. Stages exchange as soon as they finish,
and stages with few parameters finish soon: a ring has an entire port while other stages compute. Shapes: P pipelines, S
stages, B buckets, R ports that rings of several stages cross, M stages whose rings are coupled by ports.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.costs.collectives.groups import strides_of
from forerun.simulator.events.step.traffic import ring_edges, ring_rate
from forerun.simulator.opgraph.groups import distinct_replicas, stage_strides
from forerun.simulator.opgraph.layers import Floats
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.clusters.spec import NETWORK_KINDS, ClusterSpec

_SAME = 1e-9
"""Relative difference below which a rate or the rest of a bucket counts as zero."""


def simultaneous_pace(cluster: Cluster, replicas: int, parts: int, *, across: bool) -> float:
    """Return the pace of rings that exchange at once, relative to the rule for collectives.

    Rings connect every part ``across`` the replicas, or the parts of every replica. Parts that divide the devices of a
    node, or the reverse, share ports as the rule assumes.
    """
    unit = cluster.spec.unit if cluster.spec else parts
    if parts == 1 or (across and replicas == 1) or unit % parts == 0 or parts % unit == 0:
        return 1.0
    return _pace(_ClusterKey(cluster), replicas, parts, across)


def at_pace(pace: Floats, seconds: Floats, latency_s: Floats) -> Floats:
    """Return the ``seconds`` of exchanges at another pace; their ``latency_s`` does not change."""
    return np.asarray(np.where(pace == 1.0, seconds, latency_s + (seconds - latency_s) / pace))


def rings_met(cluster: Cluster, replicas: int, parts: int) -> float:
    """Return the number of rings across replicas for every ring of parts, on the port that both load most."""
    return _rings_met(_ClusterKey(cluster), _repeating_replicas(cluster, replicas, parts), parts)


class _ClusterKey:
    """A cluster as the key of a cache, since hashing its entire description is slower than a look-up."""

    __slots__ = ("cluster",)

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __hash__(self) -> int:
        return hash((self.cluster.name, self.cluster.levels))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ClusterKey) and self.cluster == other.cluster


@lru_cache(maxsize=4096)
def _pace(key: _ClusterKey, replicas: int, parts: int, across: bool) -> float:
    cluster = key.cluster
    devices = _devices(_repeating_replicas(cluster, replicas, parts), parts)
    ranks, strides = replicas, stage_strides(cluster.levels, replicas, parts)
    if not across:
        ranks, strides = parts, tuple(strides_of(cluster.levels, devices))
    assumed, lone = (float(ring_rate(cluster, ranks, strides, lone=lone).min()) for lone in (False, True))
    fullest = float(_loads(key, len(devices), parts, across).sum(axis=1).max(initial=0.0))
    return min(lone, 1.0 / max(fullest, _SAME / lone)) / assumed


@lru_cache(maxsize=4096)
def _rings_met(key: _ClusterKey, replicas: int, parts: int) -> float:
    devices = _devices(replicas, parts)
    load = _port_loads(key.cluster, [*devices.T.tolist(), *devices.tolist()])
    across, inside = load[:, :parts].sum(axis=1), load[:, parts:].sum(axis=1)
    both = np.flatnonzero((across > 0) & (inside > 0))
    if not both.size:
        return 1.0
    most = both[np.argmax((across + inside)[both])]
    return float(across[most] / inside[most])


@lru_cache(maxsize=4096)
def _loads(key: _ClusterKey, replicas: int, parts: int, across: bool) -> Floats:
    """Return the seconds per byte of G rings on each distinct port, [ports, G].

    Rings connect every part ``across`` the replicas, or the parts of every replica.
    """
    devices = _devices(replicas, parts)
    return np.unique(_port_loads(key.cluster, (devices.T if across else devices).tolist()), axis=0)


def _coupled_rings(load_RS: Floats) -> Iterator[tuple[NDArray[np.intp], Floats]]:
    """Yield the stages whose rings share ports, directly or by other rings, and their load on these ports."""
    crossed, stages = load_RS > 0, load_RS.shape[1]
    first_S, changed = np.arange(stages), True
    while changed:
        first_R = np.where(crossed, first_S, stages).min(axis=1)
        nearer_S = np.minimum(first_S, np.where(crossed, first_R[:, None], stages).min(axis=0, initial=stages))
        first_S, changed = nearer_S, bool(np.any(nearer_S < first_S))
    for first in np.flatnonzero(np.bincount(first_S) > 1):
        members = np.flatnonzero(first_S == first)
        yield members, load_RS[crossed[:, members].any(axis=1)][:, members]


def distinct_places(cluster: Cluster, replicas: int, parts: int) -> int:
    """Return the number of replicas after which their positions on links and ports repeat, at most all of them."""
    return max(distinct_replicas(cluster.levels, replicas, parts), _repeating_replicas(cluster, replicas, parts))


def _repeating_replicas(cluster: Cluster, replicas: int, parts: int) -> int:
    """Return the number of replicas after which their positions in nodes repeat."""
    unit = cluster.spec.unit if cluster.spec else cluster.devices_per_node
    return min(replicas, 2 * math.lcm(unit, parts) // parts)


def _devices(replicas: int, parts: int) -> NDArray[np.int64]:
    """List the devices of replicas by their parts."""
    return np.arange(replicas * parts).reshape(replicas, parts)


def _port_loads(cluster: Cluster, groups: Sequence[list[int]]) -> Floats:
    """Return the seconds per byte of the ring of each of G groups on every port, [ports, G]."""
    unit = cluster.spec.unit if cluster.spec else cluster.devices_per_node
    edges = [
        (*ends, number, connections / channels)
        for number, (channels, ring) in enumerate(ring_edges(members, unit) for members in groups)
        for *ends, connections in ring
    ]
    source, target, ring_E = np.array([edge[:3] for edge in edges]).T
    share_E, loads = np.array([edge[3] for edge in edges]), [np.zeros((0, len(groups)))]
    for _, here, port, rate in crossed_ports(cluster, source, target):
        distinct, which = np.unique(port, return_inverse=True)
        loads.append(np.zeros((len(distinct), len(groups))))
        np.add.at(loads[-1], (which, ring_E[here]), share_E[here] / rate)
    return np.concatenate(loads)


def crossed_ports(
    cluster: Cluster,
    source_E: NDArray[np.int64],
    target_E: NDArray[np.int64],
    base_E: NDArray[np.int64] | None = None,
) -> Iterator[tuple[int, NDArray[np.intp], NDArray[np.int64], Floats | float]]:
    """Yield the ports of one kind that connections cross at a level.

    They are given by the number of the level, the indices of connections, and their ports with the rates. Ports are
    those of the receiving device, the NICs and host links of both nodes, and the common port of the devices that a
    level connects as one. ``base_E``: number of the first device, where connections are of different jobs.
    """
    spec, inner, waiting = cluster.spec, 1, np.ones(len(source_E), dtype=bool)
    base_E = np.zeros_like(source_E) if base_E is None else base_E
    for number, level in enumerate(cluster.levels):
        last = level is cluster.levels[-1]
        here = np.flatnonzero(waiting & (last | (source_E // level.size == target_E // level.size)))
        waiting[here] = False
        source, target = ((base_E + end_E)[here] for end_E in (source_E, target_E))
        yield number, here, target, max(level.port_bytes_per_s, level.bytes_per_s)
        if level.kind in NETWORK_KINDS:
            inner = spec.unit if spec else cluster.devices_per_node
        if inner > 1:
            for end in (source, target):
                yield number, here, end // inner, level.bytes_per_s * inner
        if level.kind in NETWORK_KINDS and spec is not None and spec.network is not None:
            table = _network_ports(_ClusterKey(cluster))
            (node, sender), (reading, reader) = (np.divmod(end, len(table.rail_D)) for end in (source, target))
            into = table.into_DRK[reader, table.rail_D[sender]]
            for at, numbers in ((node, table.out_DK[sender]), (reading, into)):
                for one in numbers.T:
                    yield number, here, at * len(table.rate_X) + one, level.port_bytes_per_s * table.rate_X[one]
        inner = level.size


def _way(
    spec: ClusterSpec, device: int, direction: str, rail: int | None
) -> tuple[list[tuple[tuple[object, ...], float]], int]:
    """Return the shared ports between a device and the network, and the NIC: PCIe switch, link between sockets."""
    # A receiver uses the NIC of the sender's ``rail`` where its socket has it, otherwise its own.
    assert spec.network is not None
    (node, local), host, network = divmod(device, spec.devices_per_node), spec.host, spec.network
    if network.direct:
        return [((direction, node, local), network.nic_bytes_per_s)], local
    socket = local // spec.devices_per_socket
    ports: list[tuple[tuple[object, ...], float]] = []
    if host.switch_devices:
        ports.append(((direction, node, "switch", local // host.switch_devices), host.switch_bytes_per_s))
    near = [nic for nic in range(network.nics_per_node) if nic % host.sockets == socket]
    if not near:
        near = list(range(network.nics_per_node))
        ports.append(((direction, node, "socket", socket), host.socket_bytes_per_s))
    nic = rail if rail in near else near[local % spec.devices_per_socket % len(near)]
    ports += [((direction, node, "device", local), host.bytes_per_s), ((direction, node, nic), network.nic_bytes_per_s)]
    return ports, nic


@dataclass(frozen=True, slots=True, kw_only=True)
class _NetworkPorts:
    """Ports between a node and the network, as X numbers: D devices of a node, R rails (NICs), at most K on a way.

    ``out_DK``: ports of a sender; ``rail_D``: its NIC; ``into_DRK``: ports of a receiver, by the sender's NIC.
    ``rate_X``: relative to the highest rate of one device, so that levels with calibrated rates have these; the last
    port is none, with an infinite rate.
    """

    out_DK: NDArray[np.int64]
    rail_D: NDArray[np.int64]
    into_DRK: NDArray[np.int64]
    rate_X: Floats


@lru_cache(maxsize=64)
def _network_ports(key: _ClusterKey) -> _NetworkPorts:
    spec = key.cluster.spec
    assert spec is not None and spec.network is not None
    devices = range(spec.devices_per_node)
    out, rail = zip(*(_way(spec, device, "out", None) for device in devices), strict=True)
    into = [[_way(spec, device, "in", one)[0] for one in range(max(rail) + 1)] for device in devices]
    ways = [*out, *itertools.chain.from_iterable(into)]
    rates = dict(port for way in ways for port in way)
    number = {port: place for place, port in enumerate(rates)}
    most, highest = max(map(len, ways)), max(min(rate for _, rate in way) for way in out)
    table = np.array([[number[port] for port, _ in way] + [len(rates)] * (most - len(way)) for way in ways])
    return _NetworkPorts(
        out_DK=table[: len(out)],
        rail_D=np.array(rail),
        into_DRK=table[len(out) :].reshape(len(out), -1, most),
        rate_X=np.array([*rates.values(), np.inf]) / highest,
    )


def shared_s(
    cluster: Cluster,
    shapes_N: NDArray[np.int64],
    strides_NS: Floats,
    shape_P: NDArray[np.intp],
    ready_PSB: Floats,
    wire_PSB: Floats,
    latency_PSB: Floats,
) -> Floats:
    """Return the seconds of every bucket's exchange after the arrival of earlier buckets.

    ``shapes_N``: distinct replicas and parts, [N, 2]; ``strides_NS``: spacing of the replicas of their stages;
    ``shape_P``: index of every pipeline's shape; ``wire_PSB``: seconds by the rule for collectives (0: no bucket);
    ``ready_PSB``: time at which a bucket is full; ``latency_PSB``: part of its seconds that is independent of the rate.
    """
    key, latency = _ClusterKey(cluster), np.minimum(latency_PSB, wire_PSB)
    work, count_PS = wire_PSB - latency, np.count_nonzero(wire_PSB, axis=2)
    assumed_NS, lone_NS = (ring_rate(cluster, shapes_N[:, :1], strides_NS, lone=lone) for lone in (False, True))
    pace_PS = np.ones(count_PS.shape)
    by_size = defaultdict[tuple[int, ...], list[Sequence[NDArray[Any]]]](list)
    for number, (replicas, parts) in enumerate(shapes_N.tolist()):
        if replicas == 1:
            continue
        rows, stages = np.flatnonzero(shape_P == number), min(parts, count_PS.shape[1])
        load = _loads(key, _repeating_replicas(cluster, replicas, parts), parts, True)[:, :stages]
        assumed, most = assumed_NS[number, :stages], lone_NS[number, :stages]
        most = np.minimum(most, 1.0 / np.maximum(load.max(axis=0, initial=0.0), _SAME / assumed))
        pace_PS[rows, :stages] = most / assumed
        met = (np.count_nonzero(load, axis=1) > 1) & ((load * most).sum(axis=1) > 1.0 + _SAME)
        for members, load_RM in _coupled_rings(load[met] * assumed):
            loads_PRM = np.broadcast_to(load_RM, (len(rows), *load_RM.shape))
            by_size[load_RM.shape].append((loads_PRM, *np.broadcast_arrays(rows[:, None], members)))
    took = latency + work / pace_PS[:, :, None]
    for groups in by_size.values():
        loads, *at = map(np.concatenate, zip(*groups, strict=True))
        took[*at] = _played_s(pace_PS[*at], loads, ready_PSB[*at], latency[*at], work[*at], count_PS[*at])
    return took


def _played_s(
    pace_PM: Floats, load_PRM: Floats, ready_PMB: Floats, latency_PMB: Floats, work_PMB: Floats, count_PM: np.ndarray
) -> Floats:
    """Simulate groups of M rings on R ports at once, from one start or end of a bucket to the next."""
    took = np.zeros_like(work_PMB)
    row, ring = np.meshgrid(*(np.arange(size) for size in count_PM.shape), indexing="ij")
    bucket, free = np.zeros_like(count_PM), np.zeros(count_PM.shape)
    last = work_PMB.shape[2] - 1
    asked = ready_PMB[:, :, 0].copy()
    begin, left = asked + latency_PMB[:, :, 0], work_PMB[:, :, 0].copy()
    now = np.zeros(len(count_PM))
    crossed = load_PRM > 0
    while True:
        open_PM = bucket < count_PM
        if not open_PM.any():
            return took
        active = open_PM & (begin <= now[:, None])
        # The narrowest port sets the pace of a ring: all rings on a port have an equal share.
        full = np.asarray(load_PRM @ active[:, :, None])
        narrowest = np.where(crossed, full, 0.0).max(axis=1)
        pace = np.minimum(pace_PM, 1.0 / np.maximum(narrowest, _SAME))
        end = np.where(active, now[:, None] + left / pace, np.where(open_PM, begin, np.inf))
        later = np.where(open_PM.any(axis=1), end.min(axis=1), now)
        left = np.where(active, left - pace * (later - now)[:, None], left)
        now = later
        gone = active & (end <= now[:, None] * (1 + _SAME))
        p, m = row[gone], ring[gone]
        took[p, m, bucket[gone]] = now[p] - asked[gone]
        free[gone] = now[p]
        bucket[gone] += 1
        after = np.minimum(bucket[gone], last)
        asked[gone] = np.maximum(ready_PMB[p, m, after], free[gone])
        begin[gone] = asked[gone] + latency_PMB[p, m, after]
        left[gone] = work_PMB[p, m, after]
