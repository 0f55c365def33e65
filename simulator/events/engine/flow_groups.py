"""Flow groups (transfers over the same route) and their max-min fair rates.

Transfers of a flow group have the same rate, so the bytes served to each of them grow together, and a transfer ends
when this count has grown by its size. The cost of a start or an end depends on the number of flow groups on shared
links, not on the number of transfers."""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Protocol

SAME = 1e-12
"""Relative difference of served bytes below which two members end together: a few roundings of a double."""


class Component(Protocol):
    """Flow groups that share links.

    ``wake_s``: time of the next member's end (infinite without members); ``changed``: whether a member started or ended
    since ``wake_s`` was computed; ``asked_s``: time of the executor's next event for the component, at most ``wake_s``.
    """

    number: int
    changed: bool
    wake_s: float
    asked_s: float

    def join(self, flow_group: "FlowGroup", rank: int, size_bytes: float, now_s: float) -> None:
        """Start the transfer of member ``rank`` of a flow group."""

    def leave(self, now_s: float) -> list[int]:
        """Return the ranks of the members that end now (at least the earliest)."""

    def share(self, now_s: float) -> float:
        """Set the rates; return the time of the next member's end."""


class FlowGroup:
    """Transfers under way on one route.

    ``ends``: heap of (served bytes at the end, rank of the task); ``weights``: connections of one member on each link,
    each at ``rate_bytes_per_s``; ``wake_s``: time of the next end (-1: unknown); ``place``: index in its ``component``;
    ``began_bytes``: clock value at which it had been served nothing; ``load_bytes_per_s``: rate that a
    ``ComponentOfMany`` last counted for one connection of all members together.
    """

    __slots__ = (
        "began_bytes",
        "component",
        "ends",
        "load_bytes_per_s",
        "number",
        "place",
        "rate_bytes_per_s",
        "route",
        "served_bytes",
        "since_s",
        "wake_s",
        "weights",
    )

    def __init__(self, number: int, route: tuple[int, ...], weights: tuple[float, ...]) -> None:
        self.number = self.place = number
        self.route = route
        self.weights = weights
        self.rate_bytes_per_s = self.load_bytes_per_s = 0.0
        self.served_bytes = self.since_s = self.began_bytes = 0.0
        self.wake_s = -1.0
        self.ends: list[tuple[float, int]] = []
        self.component: Component

    def join(self, rank: int, size_bytes: float, now_s: float) -> None:
        """Add member ``rank``."""
        if self.ends:
            self.served_bytes += self.rate_bytes_per_s * (now_s - self.since_s)
        else:
            self.served_bytes = 0.0
        self.since_s = now_s
        self.wake_s = -1.0
        heappush(self.ends, (self.served_bytes + size_bytes, rank))

    def leave(self, now_s: float, ranks: list[int]) -> None:
        """Add the ranks of the members that end now (at least the earliest) to ``ranks``."""
        ends = self.ends
        served, rank = heappop(ends)
        ranks.append(rank)
        self.served_bytes, self.since_s, self.wake_s = served, now_s, -1.0
        limit = served * (1 + SAME)
        while ends and ends[0][0] <= limit:
            ranks.append(heappop(ends)[1])

    def pace(self, rate: float, now_s: float) -> float:
        """Continue at a new rate; return the time of the next member's end."""
        served = self.served_bytes + self.rate_bytes_per_s * (now_s - self.since_s)
        self.served_bytes, self.since_s, self.rate_bytes_per_s = served, now_s, rate
        left_bytes = self.ends[0][0] - served
        self.wake_s = wake_s = now_s + left_bytes / rate if left_bytes > 0 else now_s
        return wake_s


def fill(flow_groups: Sequence[FlowGroup], room: dict[int, float]) -> tuple[list[tuple[FlowGroup, float]], list[int]]:
    """Return the max-min fair rates of flow groups within the bandwidth ``room`` of their links, and the full links."""
    members: dict[int, float] = {}
    on: dict[int, list[tuple[FlowGroup, float]]] = {}
    for flow_group in flow_groups:
        size = len(flow_group.ends)
        for link, weight in zip(flow_group.route, flow_group.weights, strict=True):
            members[link] = members.get(link, 0.0) + size * weight
            on.setdefault(link, []).append((flow_group, weight))
    open_on = {link: len(users) for link, users in on.items()}
    still = {flow_group.number for flow_group in flow_groups}
    rates: list[tuple[FlowGroup, float]] = []
    full: list[int] = []
    while still:
        rate, narrow = min([(room[link] / count, link) for link, count in members.items()])
        full.append(narrow)
        for flow_group, _ in on[narrow]:
            if flow_group.number not in still:
                continue
            still.remove(flow_group.number)
            rates.append((flow_group, rate))
            size = len(flow_group.ends)
            for link, weight in zip(flow_group.route, flow_group.weights, strict=True):
                left = room[link] - rate * size * weight
                room[link] = left if left > 0 else 0.0
                members[link] -= size * weight
                open_on[link] -= 1
                if not open_on[link]:
                    del members[link]
    return rates, full


def groups_that_meet(flow_groups: Iterable[FlowGroup]) -> list[list[FlowGroup]]:
    """Return the sets of flow groups that share links, directly or through others, in order of their numbers."""
    above: dict[int, int] = {}

    def root(number: int) -> int:
        while above[number] != number:
            above[number] = above[above[number]]
            number = above[number]
        return number

    known = list(flow_groups)
    first_on: dict[int, int] = {}
    for flow_group in known:
        above[flow_group.number] = flow_group.number
        for link in flow_group.route:
            low, high = sorted((root(first_on.setdefault(link, flow_group.number)), root(flow_group.number)))
            above[high] = low
    groups: dict[int, list[FlowGroup]] = {}
    for flow_group in known:
        groups.setdefault(root(flow_group.number), []).append(flow_group)
    return list(groups.values())


def flow_groups_of(
    routes: Iterable[tuple[int, ...]], weights: Mapping[tuple[int, ...], tuple[float, ...]]
) -> dict[tuple[int, ...], FlowGroup]:
    """Return a flow group for every route (numbers of links), in order; ``weights``: connections on each link."""
    return {
        route: FlowGroup(number, route, weights.get(route, (1.0,) * len(route)))
        for number, route in enumerate(dict.fromkeys(routes))
    }
