"""Rings of gradients and of parts on common ports: each ring gets its max-min share.

The rule for collectives assumes that all devices of a node exchange at once. Stages exchange as soon as they finish,
and stages with few parameters finish soon: a ring has an entire port while other stages compute. Shapes: P pipelines, S
stages, B buckets, R ports that rings of several stages cross.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.costs.collectives.groups import strides_of
from forerun.simulator.events.step.traffic import ring_edges, ring_rate
from forerun.simulator.opgraph.groups import stage_strides
from forerun.simulator.opgraph.layers import Floats
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.clusters.spec import NETWORK_KINDS, ClusterSpec

_SAME = 1e-9
"""Relative difference below which a rate or the rest of a bucket counts as zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rings:
    """Rings of the replicas of every stage.

    ``pace_S``: rate of each ring alone, relative to the rule for collectives; ``load_RS``: share of a port that each
    ring uses at pace 1.0.
    """

    pace_S: Floats
    load_RS: Floats


def rings_of(cluster: Cluster, replicas: int, parts: int) -> Rings:
    """Return the rings of the given replicas and stages."""
    return _rings(_ClusterKey(cluster), replicas, parts)


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
    groups = devices.T if across else devices
    strides = stage_strides(cluster.levels, replicas, parts) if across else strides_of(cluster.levels, groups).tolist()
    ranks = replicas if across else parts
    assumed, lone = (
        min(ring_rate(cluster, ranks, stride, lone=alone) for stride in set(strides)) for alone in (False, True)
    )
    fullest = max((float(load.sum()) for load in _port_loads(cluster, groups).values()), default=0.0)
    return min(lone, 1.0 / max(fullest, _SAME / lone)) / assumed


@lru_cache(maxsize=4096)
def _rings(key: _ClusterKey, replicas: int, parts: int) -> Rings:
    cluster = key.cluster
    strides = stage_strides(cluster.levels, replicas, parts)
    rates = {
        stride: [ring_rate(cluster, replicas, stride, lone=lone) for lone in (False, True)] for stride in set(strides)
    }
    assumed = np.array([rates[stride][0] for stride in strides])
    most = np.array([rates[stride][1] for stride in strides])
    loads = _stage_loads(key, _repeating_replicas(cluster, replicas, parts), parts)
    most = np.minimum(most, 1.0 / np.maximum(loads.max(axis=0, initial=0.0), _SAME / assumed))
    met = (np.count_nonzero(loads, axis=1) > 1) & ((loads * most).sum(axis=1) > 1.0 + _SAME)
    return Rings(pace_S=most / assumed, load_RS=loads[met] * assumed)


@lru_cache(maxsize=4096)
def _stage_loads(key: _ClusterKey, replicas: int, parts: int) -> Floats:
    """Return the seconds per byte of the rings of all stages on each distinct port, [ports, S]."""
    ports = _port_loads(key.cluster, _devices(replicas, parts).T)
    return np.unique(np.array(list(ports.values())).reshape(-1, parts), axis=0)


def _repeating_replicas(cluster: Cluster, replicas: int, parts: int) -> int:
    """Return the number of replicas after which their positions in nodes repeat."""
    unit = cluster.spec.unit if cluster.spec else cluster.devices_per_node
    return min(replicas, 2 * math.lcm(unit, parts) // parts)


def _devices(replicas: int, parts: int) -> NDArray[np.int64]:
    """List the devices of replicas by their parts."""
    return np.arange(replicas * parts).reshape(replicas, parts)


def _port_loads(cluster: Cluster, groups: NDArray[np.int64]) -> Mapping[tuple[object, ...], Floats]:
    """Return the seconds per byte of the ring of each of G groups on every port, [G]."""
    unit = cluster.spec.unit if cluster.spec else cluster.devices_per_node
    ports: dict[tuple[object, ...], Floats] = defaultdict(lambda: np.zeros(len(groups)))
    for number, members in enumerate(groups.tolist()):
        channels, edges = ring_edges(members, unit)
        for source, target, connections in edges:
            for port, rate in _ports(cluster, source, target):
                ports[port][number] += connections / channels / rate
    return ports


def _ports(cluster: Cluster, source: int, target: int) -> list[tuple[tuple[object, ...], float]]:
    """Return the shared ports of a connection, each with its rate."""
    # By level, they are the links that leave the inner group; for a network, the routes of both ends to it.
    number = next(
        (n for n, level in enumerate(cluster.levels) if source // level.size == target // level.size),
        len(cluster.levels) - 1,
    )
    level, spec = cluster.levels[number], cluster.spec
    if level.kind not in NETWORK_KINDS:
        inner = cluster.levels[number - 1].size if number else 1
        return [((number, source // inner), level.bytes_per_s * inner)] if inner > 1 else []
    unit = spec.unit if spec else cluster.devices_per_node
    ports: list[tuple[tuple[object, ...], float]] = [(("node", source // unit), level.bytes_per_s * unit)]
    if spec is not None and spec.network is not None:
        out, rail = _way(spec, source, "out", None)
        ports += [*out, *_way(spec, target, "in", rail)[0]]
    return ports


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


def shared_s(rings: Rings, ready_PSB: Floats, wire_PSB: Floats, latency_PSB: Floats) -> Floats:
    """Return the seconds of every bucket's exchange after the arrival of earlier buckets.

    ``wire_PSB``: seconds by the rule for collectives (0: no bucket). ``ready_PSB``: time at which a bucket is full.
    ``latency_PSB``: part of its seconds that is independent of the rate.
    """
    stages = wire_PSB.shape[1]
    pace, load = rings.pace_S[:stages], rings.load_RS[:, :stages]
    latency = np.minimum(latency_PSB, wire_PSB)
    work = wire_PSB - latency
    if not len(load):
        return latency + work / pace[:, None]
    return _played_s(pace, load, ready_PSB, latency, work, np.count_nonzero(wire_PSB, axis=2))


def _played_s(
    pace_S: Floats, load_RS: Floats, ready_PSB: Floats, latency_PSB: Floats, work_PSB: Floats, count_PS: np.ndarray
) -> Floats:
    """Simulate all pipelines at once from one start or end of a bucket to the next."""
    took = np.zeros_like(work_PSB)
    row, stage = np.meshgrid(*(np.arange(size) for size in count_PS.shape), indexing="ij")
    bucket, free = np.zeros_like(count_PS), np.zeros(count_PS.shape)
    last = work_PSB.shape[2] - 1
    asked = ready_PSB[:, :, 0].copy()
    begin, left = asked + latency_PSB[:, :, 0], work_PSB[:, :, 0].copy()
    now = np.zeros(len(count_PS))
    crossed = load_RS > 0
    while True:
        open_PS = bucket < count_PS
        if not open_PS.any():
            return took
        active = open_PS & (begin <= now[:, None])
        # The narrowest port sets the pace of a ring: all rings on a port have an equal share.
        full = active @ load_RS.T
        narrowest = np.where(crossed[None], full[:, :, None], 0.0).max(axis=1)
        pace = np.minimum(pace_S, 1.0 / np.maximum(narrowest, _SAME))
        end = np.where(active, now[:, None] + left / pace, np.where(open_PS, begin, np.inf))
        later = np.where(open_PS.any(axis=1), end.min(axis=1), now)
        left = np.where(active, left - pace * (later - now)[:, None], left)
        now = later
        gone = active & (end <= now[:, None] * (1 + _SAME))
        p, s = row[gone], stage[gone]
        took[p, s, bucket[gone]] = now[p] - asked[gone]
        free[gone] = now[p]
        bucket[gone] += 1
        after = np.minimum(bucket[gone], last)
        asked[gone] = np.maximum(ready_PSB[p, s, after], free[gone])
        begin[gone] = asked[gone] + latency_PSB[p, s, after]
        left[gone] = work_PSB[p, s, after]
