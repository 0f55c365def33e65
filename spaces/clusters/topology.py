"""The graph of links of a cluster.

Nodes are tuples with their kind first: ``("device", 3)``, ``("nvswitch", 0)``, ``("pcie", node, 1)``, ``("socket",
node, 0)``, ``("nic", node, 2)``, ``("leaf", group, rail)``, ``("spine", tier, group)``. Edges have
``capacity_bytes_per_s`` (one direction), ``latency_s`` and ``kind``. The switches of one domain count as one, since
they are never the bottleneck; so do the PCIe switches of one socket, unless the description distinguishes them.
networkx is imported only when a graph is built.
"""

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

from forerun.spaces.clusters.levels import SPINE_S, mesh_link_bytes_per_s, torus_link_bytes_per_s
from forerun.spaces.clusters.spec import ClusterSpec, Network, ScaleUp, Tier
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    import networkx

    Graph = networkx.Graph[Any]


def build_graph(spec: ClusterSpec, nodes: int) -> "Graph":
    """Return the graph of the first ``nodes`` nodes of ``spec``.

    Device nodes have ``node``, ``socket``, ``domain`` and ``tier 0`` and above (numbers of their groups); a socket
    through whose memory transfers are staged has ``throughput_bytes_per_s``; ``graph.graph["spec"]`` is the spec.

    Raises
    ------
    RequestError
        The number is below one or above the cluster's.
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
                lower = ("leaf", group, rail) if place == 0 else ("spine", place, group)
                wide = tier.nodes * rate * (network.nics_per_node // rails) / less
                _join(graph, lower, switch, wide, SPINE_S / 2, "network")


def _join(graph: "Graph", a: Hashable, b: Hashable, rate: float, latency_s: float, kind: str) -> None:
    graph.add_edge(a, b, capacity_bytes_per_s=rate, latency_s=latency_s, kind=kind)
