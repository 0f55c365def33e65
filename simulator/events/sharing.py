"""Links shared by concurrent transfers with max-min fairness (progressive filling).

Transfers over the same route get the same rate, so they are kept together as a *bundle*: what one of its members has
been served grows at one rate, and a member ends when that has grown by its bytes. So a start or an end costs as many
steps as there are bundles near by, however many transfers those hold.

Progressive filling: raise all rates together until a link is full, freeze what crosses it, go on with the rest
(Bertsekas and Gallager, Data Networks, section 6.5.2). Only what a change can reach is filled anew: bundles that meet
it on full links, directly or through others. A link that nobody fills passes nothing on, so that a network without
oversubscription falls apart into its ports.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from heapq import heappop, heappush

_SAME = 1e-12
"""Relative difference of served bytes below which two members end together: a few roundings of a double."""
_FULL = 1 - 1e-9
"""Share of its capacity from which on a link counts as full; above the roundings of many small changes."""

_FEW = 12
"""Bundles up to which neighbours are taken along without asking whether they feel the change: that costs less."""


class Bundle:
    """Transfers under way on one route. ``ends``: heap of (served bytes at which it ends, rank of the task);
    ``weights``: connections of one member on each link, each of which gets ``rate_bytes_per_s``; ``load_bytes_per_s``:
    what one connection of every member together took when rates were last set; ``wake_s``: when the next of them
    ends."""

    __slots__ = (
        "ends",
        "load_bytes_per_s",
        "number",
        "rate_bytes_per_s",
        "route",
        "served_bytes",
        "since_s",
        "wake_s",
        "weights",
    )

    def __init__(self, number: int, route: tuple[int, ...], weights: tuple[float, ...]) -> None:
        self.number = number
        self.route = route
        self.weights = weights
        self.rate_bytes_per_s = self.load_bytes_per_s = 0.0
        self.served_bytes = self.since_s = 0.0
        self.wake_s = -1.0
        self.ends: list[tuple[float, int]] = []


class SharedLinks:
    """All links of a graph and the bundles on them. ``changed``: bundles that gained or lost a member since the rates
    were last set, by number."""

    __slots__ = ("_active", "_by_route", "_capacity", "_full", "_load", "_weights", "bundles", "changed")

    def __init__(self, capacity_bytes_per_s: list[float], weights: Mapping[tuple[int, ...], tuple[float, ...]]) -> None:
        self._weights = weights
        self._capacity = capacity_bytes_per_s
        self._load = [0.0] * len(capacity_bytes_per_s)
        self._full = [False] * len(capacity_bytes_per_s)
        self._active: list[dict[int, Bundle]] = [{} for _ in capacity_bytes_per_s]
        self._by_route: dict[tuple[int, ...], Bundle] = {}
        self.changed: dict[int, Bundle] = {}
        self.bundles: list[Bundle] = []

    def join(self, rank: int, size_bytes: float, route: tuple[int, ...], now_s: float) -> None:
        """Begin a transfer; its rate is set by the next ``share``."""
        bundle = self._by_route.get(route)
        if bundle is None:
            bundle = self._by_route[route] = Bundle(
                len(self.bundles), route, self._weights.get(route, (1.0,) * len(route))
            )
            self.bundles.append(bundle)
        if bundle.ends:
            bundle.served_bytes += bundle.rate_bytes_per_s * (now_s - bundle.since_s)
        else:
            bundle.served_bytes = 0.0
            for link in route:
                self._active[link][bundle.number] = bundle
        bundle.since_s = now_s
        heappush(bundle.ends, (bundle.served_bytes + size_bytes, rank))
        self.changed[bundle.number] = bundle

    def leave(self, bundle: Bundle, now_s: float) -> list[int]:
        """Return the ranks of the members of a bundle that end now, its earliest at least."""
        ends = bundle.ends
        bundle.since_s = now_s
        bundle.served_bytes = ends[0][0]
        limit = bundle.served_bytes * (1 + _SAME)
        ranks = [heappop(ends)[1]]
        while ends and ends[0][0] <= limit:
            ranks.append(heappop(ends)[1])
        if not ends:
            for link in bundle.route:
                del self._active[link][bundle.number]
        self.changed[bundle.number] = bundle
        return ranks

    def share(self, now_s: float) -> list[tuple[float, int]]:
        """Set the rates around all changes; return (time, bundle) of ends that moved."""
        if len(self.changed) == 1:
            ((_, bundle),) = self.changed.items()
            moved = self._alone(bundle, now_s) if bundle.ends else None
            if moved is not None:
                self.changed.clear()
                return moved
        region: dict[int, Bundle] = {}
        self._reach(region, self.changed.values())
        self.changed.clear()
        while True:
            rates, full = self._fill(region)
            beside = [other for link in full for number, other in self._active[link].items() if number not in region]
            if not beside:
                break
            self._reach(region, beside)
        moved = self._pace(now_s, rates)
        self._load_links(region.values())
        return moved

    def _alone(self, bundle: Bundle, now_s: float) -> list[tuple[float, int]] | None:
        """Do what ``share`` does for a bundle that shares its links with no other; None where it does not."""
        active, capacity, members = self._active, self._capacity, len(bundle.ends)
        whole = math.inf
        for link, weight in zip(bundle.route, bundle.weights, strict=True):
            if len(active[link]) != 1:
                return None
            if capacity[link] < whole * weight:
                whole = capacity[link] / weight
        for link, weight in zip(bundle.route, bundle.weights, strict=True):
            self._load[link] = whole * weight
            self._full[link] = whole * weight >= capacity[link] * _FULL
        served = bundle.served_bytes + bundle.rate_bytes_per_s * (now_s - bundle.since_s)
        bundle.served_bytes, bundle.since_s = served, now_s
        bundle.load_bytes_per_s, bundle.rate_bytes_per_s = whole, whole / members
        wake_s = now_s + max(bundle.ends[0][0] - served, 0.0) * members / whole
        if wake_s == bundle.wake_s:
            return []
        bundle.wake_s = wake_s
        return [(wake_s, bundle.number)]

    def _pace(self, now_s: float, rates: list[tuple[Bundle, float]]) -> list[tuple[float, int]]:
        """Serve bundles up to now and give them their new rates; return (time, bundle) of ends that moved."""
        moved = []
        for bundle, rate in rates:
            bundle.served_bytes += bundle.rate_bytes_per_s * (now_s - bundle.since_s)
            bundle.since_s, bundle.rate_bytes_per_s = now_s, rate
            left_bytes = bundle.ends[0][0] - bundle.served_bytes
            wake_s = now_s + left_bytes / rate if left_bytes > 0 else now_s
            if wake_s != bundle.wake_s:
                bundle.wake_s = wake_s
                moved.append((wake_s, bundle.number))
        return moved

    def _reach(self, region: dict[int, Bundle], new: Iterable[Bundle]) -> None:
        """Add bundles to a region, and all that meet them on full links."""
        stack = list(new)
        for bundle in stack:
            region[bundle.number] = bundle
        while stack:
            for link in stack.pop().route:
                if self._full[link] or len(region) < _FEW:
                    for number, other in self._active[link].items():
                        if number not in region:
                            region[number] = other
                            stack.append(other)

    def _fill(self, region: dict[int, Bundle]) -> tuple[list[tuple[Bundle, float]], list[int]]:
        """Return max-min fair rates of a region in what the others leave of its links, and the links that get full."""
        room: dict[int, float] = {}
        members: dict[int, float] = {}
        users: dict[int, int] = {}
        still: dict[int, Bundle] = {}
        for number, bundle in region.items():
            size = len(bundle.ends)
            load = bundle.load_bytes_per_s
            for link, weight in zip(bundle.route, bundle.weights, strict=True):
                room[link] = room.get(link, self._capacity[link] - self._load[link]) + load * weight
                if size:
                    members[link] = members.get(link, 0.0) + size * weight
                    users[link] = users.get(link, 0) + 1
            if size:
                still[number] = bundle
        rates: list[tuple[Bundle, float]] = []
        full: list[int] = []
        while still:
            rate, narrow = min([(room[link] / count, link) for link, count in members.items()])
            full.append(narrow)
            for number in self._active[narrow]:
                bundle = still.pop(number, None)  # type: ignore[arg-type]  # None where it is frozen or outside
                if bundle is None:
                    continue
                rates.append((bundle, rate))
                size = len(bundle.ends)
                for link, weight in zip(bundle.route, bundle.weights, strict=True):
                    left = room[link] - rate * size * weight
                    room[link] = left if left > 0 else 0.0
                    members[link] -= size * weight
                    users[link] -= 1
                    if not users[link]:
                        del members[link]
        return rates, full

    def _load_links(self, region: Collection[Bundle]) -> None:
        """Bring the loads of links up to date with the rates of a region."""
        load, capacity = self._load, self._capacity
        for bundle in region:
            now = bundle.rate_bytes_per_s * len(bundle.ends)
            more = now - bundle.load_bytes_per_s
            bundle.load_bytes_per_s = now
            for link, weight in zip(bundle.route, bundle.weights, strict=True):
                load[link] = load[link] + more * weight if self._active[link] else 0.0
        for bundle in region:
            for link in bundle.route:
                self._full[link] = load[link] >= capacity[link] * _FULL
