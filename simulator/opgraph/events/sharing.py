"""Cluster links shared by the transfers of an operator graph's step.

A flow is the traffic of one transfer between the devices of all its groups. One device represents a pipeline rank, so a
flow has the connections of all its devices. Rates and fair sharing are computed as for transformers
(``events.step.traffic``, ``events.step.contention``)."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from forerun.simulator.costs import stride_of
from forerun.simulator.costs.collectives.constants import constants_of
from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.events.step.contention import Contention, Key, SharedLinks, contention_of
from forerun.simulator.events.step.traffic import CrossedLinks, Flow, Traffic, ring_edges, ring_rate
from forerun.simulator.layouts import Transfer, transfer_time_s
from forerun.simulator.layouts.price import crossings
from forerun.simulator.opgraph.events.plan import Move
from forerun.spaces.clusters.cluster import Cluster

Groups = tuple[str, tuple[tuple[int, ...], ...], tuple[float, ...]]
"""Kind and groups of a transfer, and the relative sizes of its messages, which determine its use of links."""
_RINGS = ("all_reduce", "reduce_scatter", "all_gather")
_MESSAGES = ("point_to_point", "halo")
MOST_CONNECTIONS = 20_000
"""Connections of a transfer up to which its links are looked up, at about 50 us each. More of them, as in an exchange
between hundreds of devices, load all ports equally, as the cost rules assume."""
_LEAST = 1.0
"""Elements of a transfer that is only latency."""


def shares_links(cluster: Cluster, devices: int, contention: bool) -> bool:
    """Check whether transfers between some devices share links.

    Transfers share links on a cluster with a graph of links; ``contention`` on a cluster without one is refused.
    """
    return devices > 1 and (contention or cluster.spec is not None)


def share_links(
    cluster: Cluster, devices: int, graph: TaskGraph, moves: Mapping[int, Move]
) -> tuple[Contention, Mapping[Key, float]]:
    """Put the transfers (by task) of a graph on the cluster's links.

    Return the contention, and the bytes of every connection of each flow. Time independent of the rate is measured by a
    transfer of almost zero bytes.

    Raises:
        RequestError: the cluster has no graph of links, or a device cannot be reached.
    """
    links = TaskGraph(())
    crossed = CrossedLinks(cluster, devices, links)
    numbers: dict[Groups, int] = {}
    moves = {task: move for task, move in moves.items() if _connections(move.transfer) <= MOST_CONNECTIONS}
    for move in moves.values():
        numbers.setdefault(_groups_of(move.transfer), len(numbers))
    traffic = Traffic(
        replicas=1,
        stages=len(numbers),
        link_names=links.link_names,
        capacity_bytes_per_s=links.capacity_bytes_per_s,
        p2p={},
        rings={number: _flow(cluster, crossed, links, *groups) for groups, number in numbers.items()},
    )
    shared = contention_of(traffic)
    wires = SharedLinks(shared, graph)
    for task, move in moves.items():
        groups = _groups_of(move.transfer)
        least = replace(move.transfer, elements=(_LEAST,) * len(move.transfer.groups))
        latency_s = min(transfer_time_s(cluster, least, 1.0), move.seconds)
        wires.occupy(task, (numbers[groups],), wire_s=move.seconds - latency_s, latency_s=latency_s)
    return shared, wires.sent_bytes


def _groups_of(transfer: Transfer) -> Groups:
    """Return the key of a transfer's links."""
    largest = max(transfer.elements)
    sizes = tuple(round(size / largest, 2) for size in transfer.elements) if transfer.kind in _MESSAGES else ()
    return transfer.kind, transfer.groups, sizes


def _flow(
    cluster: Cluster,
    crossed: CrossedLinks,
    links: TaskGraph,
    kind: str,
    groups: tuple[tuple[int, ...], ...],
    sizes: tuple[float, ...],
) -> Flow:
    """Return the connections of all groups, at the rate that the cost rules assume."""
    if kind in _RINGS:
        return _ring(cluster, crossed, groups)
    if kind in _MESSAGES:
        return _messages(cluster, crossed, links, groups, sizes)
    pairs = list(pairs_of(kind, groups))
    number = max(crossed.level(source, target) for source, target, _ in pairs)
    level = cluster.levels[number]
    port = level.port_bytes_per_s
    mesh = constants_of(level, cluster.device.architecture).mesh
    rate = port if mesh else min(port, level.bytes_per_s)
    return Flow(assumed_bytes_per_s=rate, lone_bytes_per_s=port, wire_s=0.0, latency_s=0.0, load=crossed.load(pairs))


def _messages(
    cluster: Cluster,
    crossed: CrossedLinks,
    links: TaskGraph,
    pairs: Sequence[tuple[int, ...]],
    sizes: Sequence[float],
) -> Flow:
    """Return the connections of messages; a message is the fraction of a connection for which its sender sends it."""
    ends = [(source, target) for source, target in pairs]
    levels = [cluster.levels[crossed.level(*pair)] for pair in ends]
    shares = [share for _, share in crossings(cluster.levels, ends)]
    took = [
        size / min(level.port_bytes_per_s, level.bytes_per_s / share)
        for size, level, share in zip(sizes, levels, shares, strict=True)
    ]
    busy: dict[int, float] = defaultdict(float)
    for (source, _), seconds in zip(ends, took, strict=True):
        busy[source] += seconds
    load = crossed.load((*pair, seconds / busy[pair[0]]) for pair, seconds in zip(ends, took, strict=True) if seconds)
    # The cost of messages includes that they share links with each other: only other transfers prolong them.
    rate = min(
        [level.port_bytes_per_s for level in levels]
        + [links.capacity_bytes_per_s[link] / connections for link, connections in load.items()]
    )
    return Flow(assumed_bytes_per_s=rate, lone_bytes_per_s=rate, wire_s=0.0, latency_s=0.0, load=load)


def _ring(cluster: Cluster, crossed: CrossedLinks, groups: tuple[tuple[int, ...], ...]) -> Flow:
    """Return the rings of all groups at the pace of the slowest; channels of a ring are parts of one connection."""
    assert cluster.spec is not None
    connections: list[tuple[int, int, float]] = []
    for members in groups:
        channels, edges = ring_edges(list(members), cluster.spec.unit)
        connections += [(source, target, count / channels) for source, target, count in edges]
    placed = np.array([(len(members), stride_of(cluster.levels, members)) for members in groups])
    assumed, lone = (float(ring_rate(cluster, *placed.T, lone=lone).min()) for lone in (False, True))
    load = crossed.load(connections)
    return Flow(assumed_bytes_per_s=assumed, lone_bytes_per_s=lone, wire_s=0.0, latency_s=0.0, load=load)


def _connections(transfer: Transfer) -> int:
    """Count the pairs of devices of a transfer; channels of a ring do not count."""
    return sum(len(group) ** 2 if transfer.kind == "all_to_all" else len(group) for group in transfer.groups)


def pairs_of(kind: str, groups: tuple[tuple[int, ...], ...]) -> Iterator[tuple[int, int, float]]:
    """Yield (sender, receiver, connections); messages that a port sends in sequence are fractions of one."""
    for members in groups:
        senders = members if kind == "all_to_all" else members[:1]
        share = 1.0 / (len(members) - 1)
        for source, target in itertools.product(senders, members):
            if source != target:
                ends = (target, source) if kind == "gather" else (source, target)
                yield (*ends, share)
