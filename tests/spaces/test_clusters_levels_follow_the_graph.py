"""Law: the closed arithmetic of the levels gives what cuts and paths of the graph give."""

import math
from dataclasses import asdict, replace

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from levels_of_graph import levels_from_graph
from profiles import tries

from forerun.spaces.clusters import (
    ClusterSpec,
    HostLinks,
    Network,
    ScaleUp,
    Tier,
    build_graph,
    cluster_names,
    levels_from_spec,
    load_cluster,
)
from forerun.spaces.errors import RequestError


def agree(spec: ClusterSpec) -> None:
    closed = levels_from_spec(spec)
    measured = levels_from_graph(build_graph(spec, spec.max_devices // spec.devices_per_node))
    assert len(closed) == len(measured)
    for one, other in zip(closed, measured, strict=True):
        for key, value in asdict(one).items():
            expected = getattr(other, key)
            if isinstance(value, float):
                expected = pytest.approx(expected, rel=1e-9)
            assert value == expected, (one.name, key)


def trimmed(spec: ClusterSpec) -> ClusterSpec:
    """Keep two groups of the widest level, and four devices along each way of a torus: all that a cut can see."""
    links = spec.scale_up
    if links is not None and math.prod(links.torus) > 64:
        torus = tuple(min(4, extent) for extent in links.torus)
        links = replace(links, torus=torus, size=math.prod(torus))
        spec = replace(spec, scale_up=links, max_devices=spec.max_devices // links.size * links.size)
    nodes = 2 * spec.unit // spec.devices_per_node
    if spec.network is not None and spec.network.oversubscription > 1 and spec.network.leaf_nodes:
        nodes = 2 * spec.network.leaf_nodes
    return replace(spec, max_devices=min(spec.max_devices, nodes * spec.devices_per_node))


@pytest.mark.parametrize("name", cluster_names())
@pytest.mark.slow
def test_every_catalogued_cluster(name: str) -> None:
    spec = load_cluster(name).spec
    assert spec is not None
    agree(trimmed(spec))


RATES = st.sampled_from([5e9, 12.5e9, 32e9, 50e9, 100e9, 450e9])


@st.composite
def specs(draw: st.DrawFn) -> ClusterSpec:
    per_node = draw(st.sampled_from([1, 2, 4, 8]))
    sockets = draw(st.sampled_from([1, 2])) if per_node > 1 else 1
    sizes = [
        size for size in (2, 4, 8) if per_node % size == 0 and (size == per_node or per_node // sockets % size == 0)
    ]
    scale_up = None
    if draw(st.booleans()):
        size = draw(st.sampled_from([*sizes, 2 * per_node]))
        kind = draw(st.sampled_from(["nvswitch", "nvlink-mesh", "torus"]))
        torus = {2: (2,), 4: (2, 2), 8: (4, 2), 16: (4, 4)}[size] if kind == "torus" else ()
        scale_up = ScaleUp(kind=kind, size=size, bytes_per_s=draw(RATES), latency_s=1e-6, torus=torus)
    behind = draw(st.sampled_from([0, *(n for n in (1, 2, 4) if per_node // sockets % n == 0)]))
    host = HostLinks(
        switch_devices=behind,
        switch_bytes_per_s=draw(RATES),
        bytes_per_s=draw(RATES),
        sockets=sockets,
        socket_bytes_per_s=draw(RATES),
        latency_s=1e-6,
        staged_bytes_per_s=None if behind else draw(st.none() | RATES),
    )
    unit = max(per_node, scale_up.size if scale_up else 1)
    over = draw(st.sampled_from([1.0, 2.0, 3.0]))
    nics = draw(st.integers(1, per_node))
    leaf = 2 * unit // per_node
    pods = tuple(
        Tier(nodes=leaf * 2**place, oversubscription=draw(st.sampled_from([1.0, 1.5, 7.0])))
        for place in range(1, draw(st.integers(1, 3)))
    )
    network = Network(
        kind="infiniband",
        nics_per_node=nics,
        nic_bytes_per_s=draw(RATES),
        latency_s=3e-6,
        oversubscription=over,
        leaf_nodes=leaf if over > 1 else None,
        tiers=pods,
        direct=nics == per_node and draw(st.booleans()),
    )
    most = 4 * unit * 2 ** len(pods)
    return ClusterSpec(devices_per_node=per_node, max_devices=most, scale_up=scale_up, host=host, network=network)


@given(specs())
@settings(max_examples=tries(30))
def test_random_clusters(spec: ClusterSpec) -> None:
    agree(spec)


def test_a_socket_with_fewer_nics_has_fewer_uplinks() -> None:
    """Five NICs on two sockets behind uplinks of half: the socket of two gets less through the spine than its devices
    could send, whatever the other one leaves open."""
    host = HostLinks(bytes_per_s=32e9, sockets=2, socket_bytes_per_s=5e9, latency_s=1e-6)
    network = Network(
        kind="infiniband", nics_per_node=5, nic_bytes_per_s=100e9, latency_s=3e-6, oversubscription=2.0, leaf_nodes=2
    )
    spec = ClusterSpec(devices_per_node=8, max_devices=32, scale_up=None, host=host, network=network)

    agree(spec)
    assert levels_from_spec(spec)[-1].bytes_per_s == pytest.approx((4 * 32e9 + 2 * 50e9 + 5e9) / 8)


def test_graph_of_a_dgx_h100_pair() -> None:
    spec = load_cluster("dgx-h100").spec
    assert spec is not None
    graph = build_graph(spec, 2)
    kinds = networkx.get_node_attributes(graph, "kind")
    count = {kind: list(kinds.values()).count(kind) for kind in set(kinds.values())}
    assert count == {"device": 16, "nvswitch": 2, "socket": 4, "nic": 16, "leaf": 8, "spine": 1}
    assert networkx.is_connected(graph)
    assert graph[("nic", 0, 3)][("leaf", 0, 3)]["capacity_bytes_per_s"] == 50e9
    assert graph[("device", 9)][("nvswitch", 1)]["capacity_bytes_per_s"] == 450e9


def test_full_bisection_between_leaf_groups_where_nothing_is_oversubscribed() -> None:
    spec = load_cluster("dgx-h100").spec
    assert spec is not None
    graph = build_graph(spec, 4)
    flow = networkx.DiGraph()
    for a, b, data in graph.edges(data=True):
        if data["kind"] != "scale-up":
            flow.add_edge(a, b, capacity=data["capacity_bytes_per_s"])
            flow.add_edge(b, a, capacity=data["capacity_bytes_per_s"])
    for device in range(32):
        ends = ("source", ("device", device)) if device < 16 else (("device", device), "sink")
        flow.add_edge(*ends)
    assert networkx.maximum_flow_value(flow, "source", "sink") == pytest.approx(16 * 50e9)


@pytest.mark.parametrize("nodes", [0, -1, 2049])
def test_a_graph_has_the_nodes_of_its_cluster(nodes: int) -> None:
    spec = load_cluster("dgx-h100").spec
    assert spec is not None
    with pytest.raises(RequestError, match="1 to 2048 nodes"):
        build_graph(spec, nodes)
