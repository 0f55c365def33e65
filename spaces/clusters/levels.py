"""Levels of a cluster by closed forms, without its graph.

Each rate is the smallest cut around one group of the preceding level, divided by its devices. A test compares the
levels of every catalogued cluster with the smallest cuts and fastest paths of its graph.
"""

from forerun.spaces.clusters.cluster import Level
from forerun.spaces.clusters.spec import ClusterSpec, HostLinks, Network, ScaleUp

# Two more switches on the route: about 0.15 us each (NVIDIA Quantum data sheet: 90 to 130 ns port to port, plus cable).
SPINE_S = 0.3e-6
NETWORKS = ("network", "spine", "core", "above")
"""Names of the levels of a network, inside out."""


def levels_from_spec(spec: ClusterSpec) -> tuple[Level, ...]:
    """Return the levels of ``spec`` from the scale-up domain outwards; empty for a single device."""
    levels: list[Level] = []
    if spec.scale_up is not None:
        levels.append(_scale_up_level(spec.scale_up))
    if spec.scale_up_size < spec.devices_per_node:
        levels += _host_levels(spec, spec.host)
    if spec.network is not None and spec.max_devices > spec.unit:
        levels += _network_levels(spec, spec.network)
    return tuple(levels)


def mesh_link_bytes_per_s(links: ScaleUp) -> float:
    """Return the rate of one link of a mesh given by a table: the busiest device divides its rate by its links."""
    counts = [0] * links.size
    for a, b, count in links.mesh:
        counts[a] += count
        counts[b] += count
    return links.bytes_per_s / max(counts)


def torus_link_bytes_per_s(links: ScaleUp) -> float:
    """Return the rate of a single link of a torus: two per dimension, one where the extent is 2."""
    return links.bytes_per_s / sum(2 if extent > 2 else 1 for extent in links.torus)


def _scale_up_level(links: ScaleUp) -> Level:
    rate = port = links.bytes_per_s
    if links.mesh:
        link = mesh_link_bytes_per_s(links)
        ends = [sum(count for a, b, count in links.mesh if device in (a, b)) for device in range(links.size)]
        rate, port = link * min(ends), link * min(count for _, _, count in links.mesh)
    elif links.kind == "torus":
        port = torus_link_bytes_per_s(links)
    elif links.kind != "nvswitch":
        port = links.bytes_per_s / (links.size - 1)
    return Level(
        name="scale-up",
        size=links.size,
        kind=links.kind,
        bytes_per_s=rate,
        port_bytes_per_s=port,
        latency_s=links.latency_s,
        in_switch=links.in_switch,
    )


def _host_levels(spec: ClusterSpec, host: HostLinks) -> list[Level]:
    per_socket, per_switch = spec.devices_per_socket, host.switch_devices
    shared = host.bytes_per_s if host.staged_bytes_per_s is None else host.staged_bytes_per_s / per_socket
    rate = min(host.bytes_per_s, shared)
    port = host.bytes_per_s if host.staged_bytes_per_s is None else min(host.bytes_per_s, host.staged_bytes_per_s)
    # Devices under a switch share its link to the socket.
    out = (rate, port)
    if per_switch:
        out = (min(rate, host.switch_bytes_per_s / per_switch), min(port, host.switch_bytes_per_s))
    levels = []
    staged = host.staged_bytes_per_s is not None
    if spec.scale_up_size < per_switch < per_socket and per_switch > 1:
        levels.append(_host_level("switch", per_switch, rate, port, host.latency_s, staged))
    if per_socket > spec.scale_up_size:
        name = "socket" if host.sockets > 1 else "node"
        inside = out if per_switch < per_socket else (rate, port)
        levels.append(_host_level(name, per_socket, *inside, host.latency_s, staged))
    if host.sockets > 1:
        cut = min(out[0], host.socket_bytes_per_s / per_socket)
        port = min(out[1], host.socket_bytes_per_s)
        levels.append(_host_level("node", spec.devices_per_node, cut, port, 2 * host.latency_s, staged))
    return levels


def _host_level(name: str, size: int, rate: float, port: float, latency_s: float, staged: bool) -> Level:
    return Level(
        name=name,
        size=size,
        kind="pcie",
        bytes_per_s=rate,
        port_bytes_per_s=port,
        latency_s=latency_s,
        staged=staged,
    )


def _network_levels(spec: ClusterSpec, network: Network) -> list[Level]:
    per_node = _node_egress_bytes_per_s(spec, network, network.nic_bytes_per_s)
    port = network.nic_bytes_per_s
    if not network.direct:
        port = min(port, spec.host.bytes_per_s, *([spec.host.switch_bytes_per_s] if spec.host.switch_devices else []))
    sizes = [min(tier.nodes * spec.devices_per_node, spec.max_devices) for tier in network.groups]
    levels: list[Level] = []
    below, less, narrowest = 0, 1.0, float("inf")
    for place, size in enumerate([*sizes, spec.max_devices]):
        if place:
            tier = network.groups[place - 1]
            less *= tier.oversubscription
            rails = 1 if place == 1 else network.nics_per_node  # a leaf has one rail, higher switches have all
            narrowest = min(narrowest, tier.nodes * rails * network.nic_bytes_per_s / less)
        if size <= max(below, spec.unit):
            continue
        # Every NIC of a group has a share of its own rail's uplink.
        rate = _node_egress_bytes_per_s(spec, network, network.nic_bytes_per_s / less) if place else per_node
        levels.append(
            Level(
                name=NETWORKS[min(place, len(NETWORKS) - 1)],
                size=size,
                kind=network.kind,
                bytes_per_s=rate / spec.devices_per_node,
                port_bytes_per_s=min(port, narrowest),
                latency_s=network.latency_s + place * SPINE_S,
                oversubscription=less,
            )
        )
        below = size
    return levels


def _node_egress_bytes_per_s(spec: ClusterSpec, network: Network, nic_bytes_per_s: float) -> float:
    """Return the smallest cut between one node's devices and the network; NICs alternate between sockets."""
    if network.direct:
        return network.nics_per_node * nic_bytes_per_s
    each = spec.host.bytes_per_s
    if spec.host.switch_devices:
        each = min(each, spec.host.switch_bytes_per_s / spec.host.switch_devices)
    total = min(network.nics_per_node * nic_bytes_per_s, spec.devices_per_node * each)
    if spec.host.sockets == 1:
        return total
    devices = spec.devices_per_socket * each
    first = -(-network.nics_per_node // 2) * nic_bytes_per_s
    second = network.nics_per_node // 2 * nic_bytes_per_s
    return min(total, first + spec.host.socket_bytes_per_s + devices, second + spec.host.socket_bytes_per_s + devices)
