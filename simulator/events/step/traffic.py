"""Traffic of one step on the links of the cluster's graph.

A *flow* is the traffic of one transfer or one collective between pairs of devices, all at one rate: the tensor ranks of
a stage that send to the next stage, or the ring of a stage's replicas. In a ring over several nodes every device of a
node carries one channel out of the node, as in NCCL's rings, so that all NICs of the node are used; tree and in-switch
algorithms are assumed to load the network equally. Durations are from the cost rules, which assume that all devices
communicate at once at ``assumed_bytes_per_s``; a flow with another rate in the graph changes its duration in
proportion. ``lone_bytes_per_s`` is the highest rate of the rules.

Traffic inside a pass (tensor, context and expert parallel) is part of the pass and not modelled here. Devices of a
scale-up domain without a switch share only their own ports; the domain has one link per pair of devices.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.simulator.costs.collectives.constants import constants_of
from forerun.simulator.costs.collectives.rule import paths_on_levels
from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.events.engine.routes import Routes
from forerun.simulator.pipeline.p2p import P2pEnd, p2p_parts_s
from forerun.simulator.replicas.slices import reduces_in_two_levels, replica_stride
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.clusters.topology import build_graph
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Placement, Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One flow; rates are per connection.

    ``wire_s``: seconds in proportion to the inverse rate, at the assumed rate; ``latency_s``: all other seconds;
    ``load``: connections of the flow on every link that it crosses.
    """

    assumed_bytes_per_s: float
    lone_bytes_per_s: float
    wire_s: float
    latency_s: float
    load: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Flows of a step, with links by number.

    ``p2p``: by (replica, from stage, to stage); ``rings``: by stage, one pass over all gradients, which also represents
    the gather of parameters.
    """

    replicas: int
    stages: int
    link_names: Sequence[str]
    capacity_bytes_per_s: Sequence[float]
    p2p: Mapping[tuple[int, int, int], Flow]
    rings: Mapping[int, Flow]


def step_traffic(context: Context, strategy: Strategy, reduce_s: Sequence[float], still_s: Sequence[float]) -> Traffic:
    """Return the traffic of a step.

    ``reduce_s``: seconds of one pass over the gradients of every stage; ``still_s``: the same on ``line_rate_cluster``.

    Raises:
        RequestError: the cluster has no graph, or a device cannot be reached.
    """
    links = TaskGraph(())
    crossed = CrossedLinks(context.cluster, strategy.devices, links)
    layout = DeviceNumbers(strategy)
    known = {number: _p2p_over(context, strategy, number) for number in range(len(context.cluster.levels))}
    p2p = {
        (replica, here, there): _p2p(layout, crossed, known, replica, here, there)
        for here, there in _neighbours(strategy)
        for replica in range(layout.replicas)
    }
    rings = {}
    if layout.replicas > 1:
        for stage in range(strategy.pp):
            rings[stage] = _ring(context, strategy, layout, crossed, stage, reduce_s[stage], still_s[stage])
    return Traffic(
        replicas=layout.replicas,
        stages=strategy.pp,
        link_names=links.link_names,
        capacity_bytes_per_s=links.capacity_bytes_per_s,
        p2p=p2p,
        rings=rings,
    )


def _neighbours(strategy: Strategy) -> list[tuple[int, int]]:
    """Return the pairs of stages that exchange microbatches and their gradients."""
    pairs = [(stage, stage + 1) for stage in range(strategy.pp - 1)]
    if strategy.vpp > 1 and strategy.pp > 2:
        pairs.append((strategy.pp - 1, 0))
    return [*pairs, *((there, here) for here, there in pairs)]


class DeviceNumbers:
    """Numbers of the devices of a strategy: tensor ranks are consecutive, followed by context ranks."""

    def __init__(self, strategy: Strategy) -> None:
        self._tp, self._cp, self._pp = strategy.tp, strategy.cp, strategy.pp
        self.replicas = strategy.dp * strategy.cp
        self._near = strategy.placement == Placement.TP_CP_EP_PP_DP

    def devices(self, replica: int, stage: int) -> range:
        """Return the tensor ranks of one stage of one replica."""
        if self._near:
            place = replica % self._cp + self._cp * (stage + self._pp * (replica // self._cp))
        else:
            place = replica + self.replicas * stage
        return range(place * self._tp, (place + 1) * self._tp)


class CrossedLinks:
    """Counts of connections on the links of the nodes of some ``devices``; these links are added to ``links``.

    Raises:
        RequestError: the cluster has no graph.
    """

    def __init__(self, cluster: Cluster, devices: int, links: TaskGraph) -> None:
        spec = cluster.spec
        if spec is None:
            raise RequestError(f"{cluster.name} has levels but no graph of links; contention needs one")
        nodes = -(-devices // spec.devices_per_node)
        self._spec, self._levels, self._links = spec, cluster.levels, links
        self._routes = Routes(build_graph(spec, nodes), links)
        self._ports: dict[tuple[int, int], int] = {}

    def level(self, source: int, target: int) -> int:
        """Return the number of the innermost level that connects both devices."""
        for number, level in enumerate(self._levels[:-1]):
            if source // level.size == target // level.size:
                return number
        return len(self._levels) - 1

    def load(self, connections: Iterable[tuple[int, int, float]]) -> dict[int, float]:
        """Return the connections on every link that any of (source, target, connections) crosses."""
        load: dict[int, float] = {}
        for source, target, count in connections:
            for link in self._way(source, target):
                load[link] = load.get(link, 0.0) + count
        return load

    def _way(self, source: int, target: int) -> Sequence[int]:
        scale_up, size = self._spec.scale_up, self._spec.scale_up_size
        if scale_up is not None and scale_up.kind != "nvswitch" and source // size == target // size:
            return self._port(source, 0, "to"), self._port(target, 1, "from")
        return self._routes.route(source, target)[0]

    def _port(self, device: int, direction: int, word: str) -> int:
        key = (device, direction)
        if key not in self._ports:
            assert self._spec.scale_up is not None
            name = f"device {device} {word} its neighbours"
            self._ports[key] = self._links.add_link(name, self._spec.scale_up.bytes_per_s)
        return self._ports[key]


def _p2p(
    layout: DeviceNumbers, crossed: CrossedLinks, known: dict[int, Flow], replica: int, here: int, there: int
) -> Flow:
    """Return the flow from the tensor ranks of a stage; ``known``: a transfer over each level, without its links."""
    pairs = list(zip(layout.devices(replica, here), layout.devices(replica, there), strict=True))
    number = max(crossed.level(*pair) for pair in pairs)
    return replace(known[number], load=crossed.load((source, target, 1.0) for source, target in pairs))


def _p2p_over(context: Context, strategy: Strategy, number: int) -> Flow:
    """Return a transfer between stages over one level of the cluster, without its links."""
    level = context.cluster.levels[number]
    stride = np.array([float(context.cluster.levels[number - 1].size if number else 1)])
    tp, dp, mbs, sp, cp = (
        np.array([float(value)]) for value in (strategy.tp, strategy.dp, strategy.mbs, strategy.sp, strategy.cp)
    )
    end = P2pEnd(tp=tp, dp=dp, mbs=mbs, sp=sp)
    whole_s, gathered_s = p2p_parts_s(context, end, end, cp, stride)
    still_s, _ = p2p_parts_s(context, end, end, cp, stride, share=0.0)
    mesh = constants_of(level, context.cluster.device.architecture).mesh
    port = level.port_bytes_per_s
    return Flow(
        assumed_bytes_per_s=port if mesh else min(port, level.bytes_per_s),
        lone_bytes_per_s=port,
        wire_s=float(whole_s[0] - still_s[0]),
        latency_s=float(still_s[0] + gathered_s[0]) + context.framework.p2p_fixed_s,
        load={},
    )


def _ring(
    context: Context,
    strategy: Strategy,
    layout: DeviceNumbers,
    crossed: CrossedLinks,
    stage: int,
    whole_s: float,
    still_s: float,
) -> Flow:
    unit = context.cluster.spec.unit if context.cluster.spec else 1
    # Where slices are shared within a node, the rings over the copies of each slice use the network.
    sharing = strategy.sharing if reduces_in_two_levels(context, strategy) else 1
    channels, connections = 1, []
    for rank, first in itertools.product(range(strategy.tp), range(sharing)):
        members = [layout.devices(replica, stage)[rank] for replica in range(first, layout.replicas, sharing)]
        channels, edges = ring_edges(members, unit)
        connections += edges
    ranks, stride = layout.replicas // sharing, replica_stride(strategy) * sharing
    assumed, lone = (float(ring_rate(context.cluster, ranks, stride, lone=lone)) for lone in (False, True))
    still_s = min(still_s, whole_s)
    return Flow(
        assumed_bytes_per_s=assumed / channels,
        lone_bytes_per_s=lone / channels,
        wire_s=whole_s - still_s,
        latency_s=still_s,
        load=crossed.load(connections),
    )


def ring_edges(members: list[int], unit: int) -> tuple[int, list[tuple[int, int, float]]]:
    """Return the number of channels of the rings over some devices, and their edges (source, target, channels).

    Channel j enters and leaves every node (``unit`` devices) by the NIC of its j-th device, so that it stays on one
    rail, and passes all devices of the node in between.
    """
    nodes: dict[int, list[int]] = {}
    for member in members:
        nodes.setdefault(member // unit, []).append(member)
    groups = list(nodes.values())
    if len(groups) == 1:
        return 1, [(source, target, 1.0) for source, target in zip(members, (*members[1:], members[0]), strict=True)]
    channels = min(len(group) for group in groups)
    edges: dict[tuple[int, int], float] = {}
    for channel in range(channels):
        for number, group in enumerate(groups):
            order = [*group[channel:], *group[:channel]]
            across = (order[0], groups[(number + 1) % len(groups)][channel])
            for edge in (*itertools.pairwise(order), across):
                edges[edge] = edges.get(edge, 0.0) + 1.0
    return channels, [(source, target, count) for (source, target), count in edges.items()]


def ring_rate(cluster: Cluster, ranks: ArrayLike, stride: ArrayLike, *, lone: bool) -> NDArray[np.float64]:
    """Return the line rates of rings of ``ranks`` devices, ``stride`` apart, in bytes per second.

    The slowest level in use determines the rate, with all channels.
    """
    rows = tuple(constants_of(level, cluster.device.architecture) for level in cluster.levels)
    members = np.broadcast_arrays(np.asarray(ranks, dtype=np.float64), np.asarray(stride, dtype=np.float64))
    paths = paths_on_levels(cluster.levels, rows, *members, lone=lone)
    rates = np.full(members[0].shape, np.inf)
    for path in paths:
        rates = np.where(path.span.used, np.minimum(rates, path.member_bytes_per_s() * path.span.inside), rates)
    return rates
