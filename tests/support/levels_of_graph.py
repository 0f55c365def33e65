"""Levels of a cluster, measured on its graph of links: cuts and paths instead of closed forms."""

from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

import networkx

from forerun.spaces.clusters import ClusterSpec
from forerun.spaces.clusters.cluster import Level
from forerun.spaces.clusters.levels import NETWORKS

if TYPE_CHECKING:
    from forerun.spaces.clusters.topology import Graph


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
