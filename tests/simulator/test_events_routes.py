"""Transfers over the graph of a cluster take the right ways and share what they have in common."""

from dataclasses import replace

import pytest
from networkx import Graph

from forerun.simulator.events.engine.engine import execute
from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.events.engine.routes import Routes
from forerun.spaces.clusters import ClusterSpec, HostLinks, Network, ScaleUp, build_graph, cluster_names, load_cluster
from forerun.spaces.errors import RequestError

SIZE = 1e12
"""Bytes of a transfer beside which latencies vanish."""


def spec(**changes: object) -> ClusterSpec:
    """Return nodes of four devices with NVLink, two sockets and two NICs, four nodes to a leaf."""
    made = ClusterSpec(
        devices_per_node=4,
        max_devices=32,
        scale_up=ScaleUp(kind="nvswitch", size=4, bytes_per_s=100e9, latency_s=1e-6),
        host=HostLinks(bytes_per_s=32e9, sockets=2, socket_bytes_per_s=20e9, latency_s=1e-6),
        network=Network(kind="infiniband", nics_per_node=2, nic_bytes_per_s=10e9, latency_s=4e-6),
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # its own fields


def transfer_times_s(cluster: Graph, transfers: list[tuple[int, int, float]]) -> list[float]:
    """Return when each of some transfers (source, target, bytes) that begin together ends, at line rate.

    Raises:
        RequestError: as for ``Routes.route``.
    """
    graph = TaskGraph(["send"])
    routes = Routes(cluster, graph)
    for source, target, size_bytes in transfers:
        links, latency_s = routes.route(source, target)
        graph.add_transfer(0, size_bytes, links, latency_s=latency_s, tag=(source, target))
    return execute(graph).end_s


def names(cluster: ClusterSpec, source: int, target: int) -> list[str]:
    graph = TaskGraph(["send"])
    links, _ = Routes(build_graph(cluster, 8), graph).route(source, target)
    return [graph.link_names[link] for link in links]


def test_a_way_inside_a_node_takes_the_fast_links_and_one_outside_the_nearest_nic() -> None:
    assert names(spec(), 0, 3) == ["device 0 to nvswitch 0", "nvswitch 0 to device 3"]
    assert names(spec(), 2, 6) == [
        "device 2 to socket 0 1",
        "socket 0 1 to nic 0 1",
        "nic 0 1 to leaf 0 1",
        "leaf 0 1 to nic 1 1",
        "nic 1 1 to socket 1 1",
        "socket 1 1 to device 6",
    ]


def test_devices_of_one_socket_share_its_nic_and_those_of_two_sockets_do_not() -> None:
    cluster = build_graph(spec(), 8)
    shared = transfer_times_s(cluster, [(0, 4, SIZE), (1, 5, SIZE)])
    apart = transfer_times_s(cluster, [(0, 4, SIZE), (2, 6, SIZE)])

    assert shared == pytest.approx([SIZE / 5e9] * 2, rel=1e-6)
    assert apart == pytest.approx([SIZE / 10e9] * 2, rel=1e-6)


def test_devices_behind_one_pcie_switch_share_its_link_to_the_socket() -> None:
    host = HostLinks(
        bytes_per_s=32e9, sockets=1, socket_bytes_per_s=20e9, latency_s=1e-6, switch_devices=2, switch_bytes_per_s=32e9
    )
    cluster = build_graph(spec(scale_up=None, host=host), 1)

    assert transfer_times_s(cluster, [(0, 1, SIZE)]) == pytest.approx([SIZE / 32e9], rel=1e-6)
    assert transfer_times_s(cluster, [(0, 2, SIZE), (1, 3, SIZE)]) == pytest.approx([SIZE / 16e9] * 2, rel=1e-6)


def test_devices_of_one_socket_spread_over_its_nics() -> None:
    wide = spec(network=Network(kind="infiniband", nics_per_node=4, nic_bytes_per_s=10e9, latency_s=4e-6))
    times = transfer_times_s(build_graph(wide, 8), [(device, device + 4, SIZE) for device in range(4)])

    assert times == pytest.approx([SIZE / 10e9] * 4, rel=1e-6)


def test_an_oversubscribed_spine_is_shared_by_all_that_leave_a_leaf() -> None:
    """Two nodes of two rails to a leaf group: four devices of a rail leave over an uplink of half of two NICs' rate."""
    network = Network(
        kind="infiniband", nics_per_node=2, nic_bytes_per_s=10e9, latency_s=4e-6, oversubscription=2.0, leaf_nodes=2
    )
    cluster = build_graph(spec(network=network), 4)
    across = transfer_times_s(cluster, [(device, device + 8, SIZE) for device in range(8)])
    inside = transfer_times_s(cluster, [(device, device + 4, SIZE) for device in range(4)])

    assert across == pytest.approx([SIZE / (2 * 10e9 / 2 / 4)] * 8, rel=1e-6)
    assert inside == pytest.approx([SIZE / 5e9] * 4, rel=1e-6)


def equal_ways(described: ClusterSpec) -> bool:
    """Check that the nodes of a cluster are on one leaf and their devices have equal ways to their NICs, so that a cut,
    which is what a level is, sees all there is."""
    if described.network is None or described.scale_up_size != described.devices_per_node:
        return False
    network = described.network
    return network.oversubscription == 1 and network.nics_per_node % described.host.sockets == 0


def test_when_all_devices_send_to_the_next_node_each_gets_what_the_level_says() -> None:
    checked = 0
    for cluster in map(load_cluster, cluster_names()):
        if cluster.spec is None or not equal_ways(cluster.spec):
            continue
        per_node = cluster.spec.devices_per_node
        level = next(level for level in cluster.levels if level.size > per_node)
        times = transfer_times_s(build_graph(cluster.spec, 2), [(d, d + per_node, SIZE) for d in range(per_node)])

        assert max(times) == pytest.approx(SIZE / level.bytes_per_s, rel=1e-6), cluster.name
        checked += 1
    assert checked > 20


def test_devices_that_cannot_be_reached_or_do_not_exist_are_named() -> None:
    cluster = build_graph(spec(), 2)
    with pytest.raises(RequestError, match="device 99 is not in the topology; use 0 to 7"):
        transfer_times_s(cluster, [(0, 99, 1.0)])
    with pytest.raises(RequestError, match="needs two different devices, but got 1 twice"):
        transfer_times_s(cluster, [(1, 1, 1.0)])
    cluster.remove_nodes_from([name for name in cluster if name[0] == "leaf"])
    with pytest.raises(
        RequestError, match=r"device 5 cannot be reached from device 1; that reaches devices \[0, 1, 2, 3\]"
    ):
        transfer_times_s(cluster, [(1, 5, 1.0)])
