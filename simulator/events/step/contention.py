"""Flows of a step that share links, reduced by symmetry to as few as possible.

Replicas with the same links, shared with the same flows, behave equally and are simulated once: replicas are coloured
by the links of their flows until no colour splits any more (an equitable partition, as in the colour refinement of
Weisfeiler and Leman). Max-min fair rates are equal within a colour, so one replica per colour with the weight of all
gives the exact rates of the cluster. Links without a difference are merged, and a link is left out where others are
always full first.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from forerun.simulator.events.engine.graph import EventGraph, TaskGraph
from forerun.simulator.events.step.traffic import Flow, Traffic

_SAME = 1e-9
"""Relative difference up to which two weights are equal in the comparison of links."""

Key = tuple[int, ...]
"""(colour, from stage, to stage) of a transfer, (stage,) of a ring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossedLink:
    """A link of the reduced graph, one of ``alike`` equal ones; ``weight`` connections of each flow cross it."""

    name: str
    capacity_bytes_per_s: float
    weight: Mapping[Key, float]
    alike: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """Flows and the links that they share.

    ``flows``: by colour and stages; ``links``: links of these flows; ``shared``: links that can slow flows down.
    ``most_bytes_per_s``: rate of each flow when it is alone. ``colours``: colour of every replica; one replica per
    colour is simulated.
    """

    flows: Mapping[Key, Flow]
    most_bytes_per_s: Mapping[Key, float]
    links: Sequence[CrossedLink]
    shared: Sequence[CrossedLink]
    colours: Sequence[int]

    @property
    def simulated(self) -> int:
        """Number of simulated replicas."""
        return max(self.colours) + 1

    def share_of(self, graph: TaskGraph, task: int, key: Key) -> float:
        """Return a task's share of a complete flow."""
        flow = self.flows[key]
        if task in graph.transfers and flow.wire_s:
            return graph.transfers[task][0] / (flow.wire_s * flow.assumed_bytes_per_s)
        whole_s = flow.latency_s if task in graph.transfers else alone_s(self, key)
        return graph.duration_s[task] / whole_s if whole_s else 0.0


def contention_of(traffic: Traffic, *, every_replica: bool = False) -> Contention:
    """Return the shared links of a step's flows; with ``every_replica`` each replica has its own colour."""
    colours = list(range(traffic.replicas)) if every_replica else _colours(traffic)
    flows: dict[Key, Flow] = {(stage,): flow for stage, flow in traffic.rings.items()}
    for (replica, here, there), flow in traffic.p2p.items():
        flows.setdefault((colours[replica], here, there), flow)
    loads = _loads(traffic, colours)
    # Links of equal capacity under equal loads fill at the same moment: one of them determines the rate of all.
    alike: dict[Hashable, list[int]] = {}
    for link, load in loads.items():
        alike.setdefault((traffic.capacity_bytes_per_s[link], frozenset(load.items())), []).append(link)
    links = [
        CrossedLink(
            name=traffic.link_names[numbers[0]],
            capacity_bytes_per_s=traffic.capacity_bytes_per_s[numbers[0]],
            weight=loads[numbers[0]],
            alike=len(numbers),
        )
        for numbers in alike.values()
    ]
    most = {key: flow.lone_bytes_per_s for key, flow in flows.items()}
    for one in links:
        for key, weight in one.weight.items():
            most[key] = min(most[key], one.capacity_bytes_per_s / weight)
    shared = _needed([one for one in links if _can_fill(one, most)])
    return Contention(flows=flows, most_bytes_per_s=most, links=links, shared=shared, colours=colours)


def _colours(traffic: Traffic) -> list[int]:
    """Return the colour of every replica; replicas of one colour share links in the same way."""
    flows_of: list[list[tuple[int, int, Flow]]] = [[] for _ in range(traffic.replicas)]
    for (replica, here, there), flow in traffic.p2p.items():
        flows_of[replica].append((here, there, flow))
    colours, count = [0] * traffic.replicas, 1
    while True:
        loads = _loads(traffic, colours)
        seen: dict[int, Hashable] = {
            link: (traffic.capacity_bytes_per_s[link], frozenset(load.items())) for link, load in loads.items()
        }
        names: dict[Hashable, int] = {value: number for number, value in enumerate(dict.fromkeys(seen.values()))}
        kinds: dict[Hashable, int] = {}
        matching = [
            kinds.setdefault((colours[replica], _signature(flows_of[replica], seen, names)), len(kinds))
            for replica in range(traffic.replicas)
        ]
        colours = matching
        # Colours only split, so an unchanged number means unchanged colours.
        if len(kinds) == count:
            return colours
        count = len(kinds)


def _signature(
    flows: Iterable[tuple[int, int, Flow]], seen: Mapping[int, Hashable], names: Mapping[Hashable, int]
) -> Hashable:
    """Return the signature of a replica's flows: their rates and the kinds of links that they cross."""
    return tuple(
        (
            *(here, there, flow.assumed_bytes_per_s, flow.wire_s, flow.latency_s),
            *sorted((names[seen[link]], count) for link, count in flow.load.items()),
        )
        for here, there, flow in flows
    )


def _loads(traffic: Traffic, colours: Sequence[int]) -> dict[int, dict[Key, float]]:
    """Return the connections of every kind of flow on every crossed link."""
    loads: dict[int, dict[Key, float]] = {}

    def add(key: Key, flow: Flow) -> None:
        for link, count in flow.load.items():
            load = loads.setdefault(link, {})
            load[key] = load.get(key, 0.0) + count

    for (replica, here, there), flow in traffic.p2p.items():
        add((colours[replica], here, there), flow)
    for stage, flow in traffic.rings.items():
        add((stage,), flow)
    return loads


def _can_fill(link: CrossedLink, most: Mapping[Key, float]) -> bool:
    """Check whether the flows on a link together exceed its capacity."""
    # A flow never exceeds its rate when alone; where the sum of these rates fits, a link slows no flow.
    wanted = sum(weight * most[key] for key, weight in link.weight.items())
    return len(link.weight) > 1 and wanted > link.capacity_bytes_per_s * (1 + _SAME)


def _needed(links: list[CrossedLink]) -> list[CrossedLink]:
    """Return the links that can fill first: links for which no other is always full before are kept."""
    shares = [{key: weight / one.capacity_bytes_per_s for key, weight in one.weight.items()} for one in links]
    by_key: dict[Key, list[int]] = {}
    for number, share in enumerate(shares):
        for key in share:
            by_key.setdefault(key, []).append(number)
    kept = []
    for number, share in enumerate(shares):
        # A link that is always full earlier must carry all flows of this one, so it is among the links of its rarest
        # flow.
        rivals = min((by_key[key] for key in share), key=len)
        if not any(_before(shares[other], share, other < number) for other in rivals if other != number):
            kept.append(links[number])
    return kept


def _before(other: Mapping[Key, float], share: Mapping[Key, float], first: bool) -> bool:
    """Check whether a link is full whenever one with ``share`` is; of two equal links only for the ``first``."""
    # Load over capacity is linear in the flows: a link with at least the share of each flow is at least as full.
    if any(other.get(key, 0.0) < value * (1 - _SAME) for key, value in share.items()):
        return False
    same = len(other) == len(share) and all(value <= share[key] * (1 + _SAME) for key, value in other.items())
    return first or not same


def alone_s(contention: Contention, key: Key) -> float:
    """Return the seconds of a complete flow that shares no link."""
    flow = contention.flows[key]
    return flow.latency_s + flow.wire_s * flow.assumed_bytes_per_s / contention.most_bytes_per_s[key]


class SharedLinks:
    """Flows on the links of a task graph.

    A flow that shares no link takes a fixed time. ``sent_bytes``: bytes carried by every connection of each flow.
    """

    def __init__(self, contention: Contention, graph: EventGraph) -> None:
        self._contention = contention
        self._graph = graph
        self._routes: dict[Key, tuple[int, ...]] = {}
        self.sent_bytes: dict[Key, float] = {}
        crossed: dict[Key, list[tuple[int, float]]] = {}
        for one in contention.shared:
            number = graph.add_link(one.name, one.capacity_bytes_per_s)
            for key, weight in one.weight.items():
                crossed.setdefault(key, []).append((number, weight))
        for key, links in crossed.items():
            # Left-out links still bound a flow: one link of its own represents the narrowest of them.
            limit = graph.add_link(f"all that flow {key} may take", contention.most_bytes_per_s[key])
            self._routes[key] = (limit, *(number for number, _ in links))
            graph.weigh(self._routes[key], (1.0, *(weight for _, weight in links)))
            graph.declare(self._routes[key])

    def send(self, kind: int, key: Key, stream: int, after: int, tag: tuple[object, ...]) -> int:
        """Add a transfer between stages after a task and return it."""
        flow, route = self._contention.flows[key], self._routes.get(key)
        self._count(key, flow.wire_s * flow.assumed_bytes_per_s)
        if route is None:
            return self._graph.add(kind, alone_s(self._contention, key), stream, (after,), tag=tag)
        size_bytes = flow.wire_s * flow.assumed_bytes_per_s
        return self._graph.add_transfer(kind, size_bytes, route, stream, (after,), latency_s=flow.latency_s, tag=tag)

    def carry(self, task: int, stage: int, share: float) -> None:
        """Make a task ``share`` of the replica traffic of a stage.

        Without replicas the task keeps its duration: copies of experts on the tensor ranks of one pipeline sum their
        gradients inside a stage.
        """
        flow, route = self._contention.flows.get((stage,)), self._routes.get((stage,))
        if flow is None:
            return
        self._count((stage,), share * flow.wire_s * flow.assumed_bytes_per_s)
        if route is None:
            self._graph.duration_s[task] = share * alone_s(self._contention, (stage,))
        else:
            size_bytes = share * flow.wire_s * flow.assumed_bytes_per_s
            self._graph.carry(task, size_bytes, route, latency_s=share * flow.latency_s)

    def occupy(self, task: int, key: Key, *, wire_s: float, latency_s: float) -> None:
        """Make a task the traffic of a flow, with its seconds at the assumed rate."""
        flow, route = self._contention.flows[key], self._routes.get(key)
        size_bytes = wire_s * flow.assumed_bytes_per_s
        self._count(key, size_bytes)
        if route is None:  # no link on its route can be full, so its rate is constant
            self._graph.duration_s[task] = latency_s + size_bytes / self._contention.most_bytes_per_s[key]
        else:
            self._graph.carry(task, size_bytes, route, latency_s=latency_s)

    def _count(self, key: Key, size_bytes: float) -> None:
        self.sent_bytes[key] = self.sent_bytes.get(key, 0.0) + size_bytes
