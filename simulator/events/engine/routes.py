"""Links of a cluster graph in a task graph, and the routes of transfers.

Every edge of the graph becomes two links, one per direction; a socket through which transfers are staged becomes one
further link for all of them. A route is the fastest for a message of 4 MiB. Devices forward no traffic of others except
on a torus. Among equal NICs a device takes the one given by its number, so the devices of a socket use all NICs evenly.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from forerun.simulator.events.engine.graph import TaskGraph
from forerun.spaces.clusters.spec import ClusterSpec
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from forerun.spaces.clusters.topology import Graph

_MESSAGE_BYTES = 4 * 2.0**20
"""Message size of the fastest route: between NCCL's smallest and largest pipelining chunks (512 KiB, several MiB)."""
_OTHER_NIC_S = 1e-9
"""Added for a NIC other than the device's own: below every latency, so it only breaks ties."""

_IN_NODES = ("socket", "pcie", "nic")
"""Places inside one node, whose number is next in their name."""


class Routes:
    """Links of a cluster graph, added to a task graph; routes are computed once per pair of devices."""

    __slots__ = ("_around", "_cluster", "_found", "_hubs", "_links", "_nics", "_spec", "_torus")

    def __init__(self, cluster: "Graph", graph: TaskGraph) -> None:
        self._cluster = cluster
        self._spec: ClusterSpec = cluster.graph["spec"]
        self._torus = self._spec.scale_up is not None and self._spec.scale_up.kind == "torus"
        self._around: dict[Hashable, dict[Hashable, list[tuple[Any, Any]]]] = {}
        self._links: dict[tuple[Hashable, Hashable], int] = {}
        self._hubs: dict[Hashable, int] = {}
        self._found: dict[tuple[int, int], tuple[tuple[int, ...], float]] = {}
        self._nics: dict[tuple[int, int], list[int]] = {}
        for a, b, data in cluster.edges(data=True):
            for low, high in ((a, b), (b, a)):
                name = f"{_name(low)} to {_name(high)}"
                self._links[low, high] = graph.add_link(name, data["capacity_bytes_per_s"])
        for hub, data in cluster.nodes(data=True):
            if "throughput_bytes_per_s" in data:
                self._hubs[hub] = graph.add_link(_name(hub), data["throughput_bytes_per_s"])
            if hub[0] == "nic":
                self._nics.setdefault((hub[1], hub[2] % self._spec.host.sockets), []).append(hub[2])

    def route(self, source: int, target: int) -> tuple[tuple[int, ...], float]:
        """Return the links from device ``source`` to device ``target`` and the latency of the route in seconds.

        Raises:
            RequestError: a device does not exist or cannot be reached, or both ends are the same device.
        """
        if (source, target) not in self._found:
            self._found[source, target] = self._search(source, target)
        return self._found[source, target]

    def _search(self, source: int, target: int) -> tuple[tuple[int, ...], float]:
        """Find the fastest route (Dijkstra)."""
        begin, end = ("device", source), ("device", target)
        for device in (begin, end):
            if device not in self._cluster:
                devices = sum(name[0] == "device" for name in self._cluster)
                raise RequestError(f"device {device[1]} is not in the topology; use 0 to {devices - 1}")
        if source == target:
            raise RequestError(f"a transfer needs two different devices, but got {source} twice")
        nodes = {self._cluster.nodes[place]["node"] for place in (begin, end)}
        before = self._reach(source, begin, end, nodes)
        if end in before:
            return self._links_along(before, end)
        reached = sorted(name[1] for name in self._reach(source, begin, None, None) if name[0] == "device")
        raise RequestError(f"device {target} cannot be reached from device {source}; that reaches devices {reached}")

    def _reach(
        self, source: int, begin: Hashable, end: Hashable | None, nodes: Collection[int] | None
    ) -> dict[Any, Any]:
        """Return the predecessor of every place up to ``end``, in order of cost."""
        # Places in ``nodes`` without an end are skipped, since no route passes through them; networkx's Dijkstra would
        # visit every link of a switch, thousands on a large cluster.
        heap: list[tuple[float, int, Any, Any]] = [(0.0, 0, begin, None)]
        before: dict[Any, Any] = {}
        added = 0
        while heap:
            cost, _, name, previous = heappop(heap)
            if name in before:
                continue
            before[name] = previous
            if name == end:
                break
            if name[0] == "device" and name != begin and not self._torus:
                continue
            for other, data in self._beside(name, end, nodes):
                if other in before or (name[0] == "device" and name != begin and data["kind"] != "scale-up"):
                    continue
                added += 1
                heappush(heap, (cost + self._seconds(source, end, name, other, data), added, other, name))
        return before

    def _beside(self, place: Any, end: Hashable | None, nodes: Collection[int] | None) -> Iterable[tuple[Any, Any]]:
        """Return the neighbours of a place and the links to them; with ``nodes`` only neighbours that a route to
        ``end`` may use, which are few even at a switch of a large cluster.
        """
        if nodes is None or self._torus:
            return self._cluster[place].items()
        if place not in self._around:
            around: dict[Hashable, list[tuple[Any, Any]]] = {}
            for other, data in self._cluster[place].items():
                key = other if other[0] == "device" else other[1] if other[0] in _IN_NODES else None
                around.setdefault(key, []).append((other, data))
            self._around[place] = around
        around = self._around[place]
        return [pair for key in (None, *nodes, end) for pair in around.get(key, ())]

    def _seconds(self, source: int, end: Any, name: Any, other: Any, data: Mapping[str, Any]) -> float:
        """Return the seconds of a transfer of ``source`` to a neighbouring place; devices prefer their own NICs."""
        seconds: float = data["latency_s"] + _MESSAGE_BYTES / data["capacity_bytes_per_s"]
        for nic, socket, device in ((other, name, source), (name, other, source if end is None else end[1])):
            if nic[0] == "nic" and socket[0] == "socket":
                nics = self._nics[socket[1], socket[2]]
                seconds += _OTHER_NIC_S * (nic[2] != nics[device % self._spec.devices_per_socket % len(nics)])
        return seconds

    def _links_along(self, before: dict[Any, Any], end: Hashable) -> tuple[tuple[int, ...], float]:
        links: list[int] = []
        latency_s = 0.0
        name: Any = end
        while before[name] is not None:
            previous = before[name]
            links.append(self._links[previous, name])
            if previous in self._hubs:
                links.append(self._hubs[previous])
            latency_s += self._cluster[previous][name]["latency_s"]
            name = previous
        return tuple(reversed(links)), latency_s


def _name(place: Any) -> str:
    return " ".join(str(part) for part in place)
