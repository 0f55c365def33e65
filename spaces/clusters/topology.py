"""The graph of links of a cluster, and the levels derived from it.

Nodes are tuples with their kind first: ``("device", 3)``, ``("nvswitch", 0)``, ``("pcie", node, 1)``, ``("socket",
node, 0)``, ``("nic", node, 2)``, ``("leaf", group, rail)``, ``("spine", tier, group)``. Edges have
``capacity_bytes_per_s`` (one direction), ``latency_s`` and ``kind``. The switches of one domain count as one, since
they are never the bottleneck; so do the PCIe switches of one socket, unless the description distinguishes them.
networkx is imported only when a graph is built.
"""

from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from forerun.spaces.clusters.cluster import Level
from forerun.spaces.clusters.levels import NETWORKS, SPINE_S, mesh_link_bytes_per_s, torus_link_bytes_per_s
from forerun.spaces.clusters.spec import ClusterSpec, Network, ScaleUp, Tier
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    import networkx

    Graph = networkx.Graph[Any]


def build_graph(spec: ClusterSpec, nodes: int) -> "Graph":
    """Return the graph of the first ``nodes`` nodes of ``spec``.

    Device nodes have ``node``, ``socket``, ``domain`` and ``tier 0`` and above (numbers of their groups); a socket
    through whose memory transfers are staged has ``throughput_bytes_per_s``; ``graph.graph["spec"]`` is the spec.

    Raises:
        RequestError: the number is below one or above the cluster's.
    """
    import networkx

    most = spec.max_devices // spec.devices_per_node
    if not 1 <= nodes <= most:
        raise RequestError(f"the cluster has 1 to {most} nodes, but got {nodes}")
    graph: Graph = networkx.Graph(spec=spec)
    for node in range(nodes):
        _add_host(graph, spec, node)
    if spec.scale_up is not None:
        devices = nodes * spec.devices_per_node
        for first in range(0, devices, spec.scale_up.size):
            _add_domain(graph, spec.scale_up, first, min(devices, first + spec.scale_up.size))
    if spec.network is not None and nodes * spec.devices_per_node > spec.unit:
        _add_network(graph, spec, spec.network, nodes)
    return graph


def levels_from_graph(graph: "Graph") -> tuple[Level, ...]:
    """Return the levels of a graph made by ``build_graph``, measured on the graph alone.

    The rate of a level is the smallest cut (maximum flow) between one group of the preceding level and the rest of its
    group, divided by its devices, limited by a shared hub when all devices send at once. The port is the widest path of
    a lone sender to its worst neighbour, or over the network to the best one (NCCL forwards inside a node to the device
    next to the NIC). The latency is that of the fastest path.
    """
    spec: ClusterSpec = graph.graph["spec"]
    devices = {name: data for name, data in graph.nodes(data=True) if name[0] == "device"}
    levels, inner = [], ""
    for step in _steps(spec):
        group = [name for name, data in devices.items() if data[step.outer] == 0]
        parts: dict[Any, list[Hashable]] = {}
        for name in group:
            parts.setdefault(devices[name][inner] if inner else name, []).append(name)
        if len(parts) > 1:
            levels.append(_measure(graph, step, list(parts.values())))
            inner = step.outer
    return tuple(levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A level to measure: the device attribute with its group numbers, and the kinds of its edges."""

    name: str
    """Name of the level."""
    outer: str
    """Device attribute with the numbers of its groups."""
    kind: str
    """See ``Level.kind``."""
    edges: frozenset[str]
    """Kinds of its edges."""
    in_switch: bool = False
    oversubscription: float = 1.0


def _steps(spec: ClusterSpec) -> Iterator[_Step]:
    if spec.scale_up is not None:
        links = spec.scale_up
        own = frozenset({"scale-up"})
        yield _Step(name="scale-up", outer="domain", kind=links.kind, edges=own, in_switch=links.in_switch)
    if spec.scale_up_size < spec.devices_per_node:
        tree = frozenset({"pcie"})
        if spec.host.switch_devices > 1 and spec.host.switch_devices < spec.devices_per_socket:
            yield _Step(name="switch", outer="switch", kind="pcie", edges=tree)
        yield _Step(name="socket" if spec.host.sockets > 1 else "node", outer="socket", kind="pcie", edges=tree)
        yield _Step(name="node", outer="node", kind="pcie", edges=tree)
    if spec.network is not None:
        everything = frozenset({"network"} if spec.network.direct else {"pcie", "network"})
        less = 1.0
        yield _Step(name=NETWORKS[0], outer="tier 0", kind=spec.network.kind, edges=everything)
        for place, tier in enumerate(spec.network.groups, start=1):
            less *= tier.oversubscription
            yield _Step(
                name=NETWORKS[min(place, len(NETWORKS) - 1)],
                outer=f"tier {place}",
                kind=spec.network.kind,
                edges=everything,
                oversubscription=less,
            )


def _add_host(graph: "Graph", spec: ClusterSpec, node: int) -> None:
    host = spec.host
    staged = host.staged_bytes_per_s
    hub: dict[str, float] = {} if staged is None else {"throughput_bytes_per_s": staged}
    tiers = spec.network.groups if spec.network else ()
    for socket in range(host.sockets):
        graph.add_node(("socket", node, socket), kind="socket", **hub)
    if host.sockets > 1:
        _join(graph, ("socket", node, 0), ("socket", node, 1), host.socket_bytes_per_s, host.latency_s, "pcie")
    for local in range(spec.devices_per_node):
        index, socket = node * spec.devices_per_node + local, local // spec.devices_per_socket
        groups = {
            "node": node,
            "switch": index // host.switch_devices if host.switch_devices else index,
            "socket": node * host.sockets + socket,
            "domain": index // spec.scale_up_size,
            **{f"tier {place}": node // tier.nodes for place, tier in enumerate(tiers)},
            f"tier {len(tiers)}": 0,
        }
        graph.add_node(("device", index), kind="device", **groups)
        above: tuple[str, int, int] = ("socket", node, socket)
        if host.switch_devices:
            above = ("pcie", node, local // host.switch_devices)
            graph.add_node(above, kind="pcie")
            _join(graph, above, ("socket", node, socket), host.switch_bytes_per_s, 0.0, "pcie")
        _join(graph, ("device", index), above, host.bytes_per_s, host.latency_s / 2, "pcie")


def _add_domain(graph: "Graph", links: ScaleUp, first: int, end: int) -> None:
    if links.kind == "nvswitch":
        switch = ("nvswitch", first // links.size)
        graph.add_node(switch, kind="nvswitch")
        for device in range(first, end):
            _join(graph, ("device", device), switch, links.bytes_per_s, links.latency_s / 2, "scale-up")
        return
    for a, b, rate in _mesh_links(links):
        if first + max(a, b) < end:
            _join(graph, ("device", first + a), ("device", first + b), rate, links.latency_s, "scale-up")


def _mesh_links(links: ScaleUp) -> Iterator[tuple[int, int, float]]:
    """Yield both ends and the rate of every direct link of a domain."""
    if links.mesh:
        rate = mesh_link_bytes_per_s(links)
        yield from ((a, b, count * rate) for a, b, count in links.mesh)
    elif links.kind == "torus":
        rate, stride = torus_link_bytes_per_s(links), 1
        for extent in links.torus:
            for device in range(links.size):
                place = device // stride % extent
                if place + 1 < extent:
                    yield device, device + stride, rate
                elif extent > 2:
                    yield device, device - (extent - 1) * stride, rate
            stride *= extent
    else:
        pairs = ((a, b) for a in range(links.size) for b in range(a + 1, links.size))
        yield from ((a, b, links.bytes_per_s / (links.size - 1)) for a, b in pairs)


def _add_network(graph: "Graph", spec: ClusterSpec, network: Network, nodes: int) -> None:
    """Attach NIC ``k`` of every node to rail ``k`` of its leaf group, the leaves of a group to one spine, and so on."""
    tiers = network.groups or (Tier(nodes=nodes),)
    rate = network.nic_bytes_per_s
    for node in range(nodes):
        for rail in range(network.nics_per_node):
            nic, leaf = ("nic", node, rail), ("leaf", node // tiers[0].nodes, rail)
            graph.add_node(nic, kind="nic")
            if network.direct:
                _join(graph, ("device", node * spec.devices_per_node + rail), nic, rate, 0.0, "network")
            else:
                _join(graph, ("socket", node, rail % spec.host.sockets), nic, rate, 0.0, "pcie")
            _join(graph, nic, leaf, rate, network.latency_s / 2, "network")
            graph.add_node(leaf, kind="leaf")
    less = 1.0
    for place, tier in enumerate(tiers):
        less *= tier.oversubscription
        above = tiers[place + 1].nodes if place + 1 < len(tiers) else nodes
        for group in range(-(-nodes // tier.nodes)):
            switch: tuple[object, ...] = ("spine", place + 1, group * tier.nodes // above)
            graph.add_node(switch, kind="spine")
            rails = network.nics_per_node if place == 0 else 1
            for rail in range(rails):
                own = ("leaf", group, rail) if place == 0 else ("spine", place, group)
                wide = tier.nodes * rate * (network.nics_per_node // rails) / less
                _join(graph, own, switch, wide, SPINE_S / 2, "network")


def _join(graph: "Graph", a: Hashable, b: Hashable, rate: float, latency_s: float, kind: str) -> None:
    graph.add_edge(a, b, capacity_bytes_per_s=rate, latency_s=latency_s, kind=kind)


def _measure(graph: "Graph", step: _Step, parts: list[list[Hashable]]) -> Level:
    """Measure the links between ``parts``, the device groups of the preceding level."""
    edges = ((a, b) for a, b, data in graph.edges(data=True) if data["kind"] in step.edges)
    links = graph.edge_subgraph(edges)
    devices = [name for part in parts for name in part]
    # Groups beyond the first few are copies; only the devices of a small mesh differ.
    shown = parts[:16]
    rate = min(_max_flow(links, part, set(devices).difference(part)) / len(part) for part in shown)
    staged: dict[Hashable, float] = {}
    if step.kind == "pcie":
        staged = {
            hub: data["throughput_bytes_per_s"]
            for hub, data in links.nodes(data=True)
            if "throughput_bytes_per_s" in data
        }
    for hub, limit in staged.items():
        served = set(devices).intersection(links[hub])
        rate = min(rate, limit / len(served)) if served else rate
    # A hop in NCCL's sense includes the path from the device to its NIC, so only links of the level's own kind count.
    own = "network" if "network" in step.edges else next(iter(step.edges))
    ports, latencies = [], []
    for part in shown:
        narrowest = _costs(links, part[0], lambda cost, data: max(cost, 1 / data["capacity_bytes_per_s"]))
        delay = _costs(links, part[0], lambda cost, data: cost + data["latency_s"] * (data["kind"] == own))
        others = [name for name in devices if name in narrowest and name not in part]
        ports += [1 / narrowest[name] for name in others]
        latencies += [delay[name] for name in others]
    return Level(
        name=step.name,
        size=len(devices),
        kind=step.kind,
        bytes_per_s=rate,
        port_bytes_per_s=max(ports) if own == "network" else min([*ports, *staged.values()]),
        latency_s=min(latencies),
        in_switch=step.in_switch,
        staged=bool(staged),
        oversubscription=step.oversubscription,
    )


def _max_flow(links: "Graph", sources: Collection[Hashable], sinks: Collection[Hashable]) -> float:
    import networkx

    flow: Any = networkx.DiGraph()
    for a, b, data in links.edges(data=True):
        flow.add_edge(a, b, capacity=data["capacity_bytes_per_s"])
        flow.add_edge(b, a, capacity=data["capacity_bytes_per_s"])
    flow.add_edges_from(("source", name) for name in sources)
    flow.add_edges_from((name, "sink") for name in sinks)
    return float(networkx.maximum_flow_value(flow, "source", "sink"))


def _costs(links: "Graph", start: Hashable, extend: Callable[[float, Any], float]) -> dict[Hashable, float]:
    """Return the least cost from ``start`` to each node; devices do not forward traffic (Dijkstra).

    ``extend``: cost of a path extended by one link. networkx's Dijkstra can only add, but the narrowest link of a path
    is a maximum.
    """
    costs: dict[Hashable, float] = {}
    order = count()
    heap: list[tuple[float, int, Any]] = [(0.0, next(order), start)]
    while heap:
        cost, _, name = heappop(heap)
        if name in costs:
            continue
        costs[name] = cost
        if name == start or name[0] != "device":
            for other, data in links[name].items():
                if other not in costs:
                    heappush(heap, (extend(cost, data), next(order), other))
    return costs
