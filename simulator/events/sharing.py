"""Links shared by concurrent transfers with max-min fairness (progressive filling).

Transfers over the same route get the same rate, so they are kept together as a *bundle*: what one of its members has
been served since the beginning of the simulation grows at one rate, and a member ends when that has grown by its bytes.
A start or an end then costs as many steps as there are bundles near by, however many transfers those hold.

Progressive filling: raise all rates together until a link is full, freeze what crosses it, go on with the rest
(Bertsekas and Gallager, Data Networks, section 6.5.2).
"""

from heapq import heappop, heappush

_SAME = 1e-12
"""Relative difference of served bytes below which two members end together: a few roundings of a double."""


class Bundle:
    """Transfers under way on one route. ``ends``: heap of (served bytes at which it ends, rank of the task)."""

    __slots__ = ("ends", "number", "rate_bytes_per_s", "route", "served_bytes", "since_s", "wake_s")

    def __init__(self, number: int, route: tuple[int, ...]) -> None:
        self.number = number
        self.route = route
        self.rate_bytes_per_s = 0.0
        self.served_bytes = 0.0
        self.since_s = 0.0
        self.wake_s = -1.0
        self.ends: list[tuple[float, int]] = []

    def advance(self, now_s: float) -> None:
        """Serve at the present rate up to now."""
        self.served_bytes += self.rate_bytes_per_s * (now_s - self.since_s)
        self.since_s = now_s


class SharedLinks:
    """All links of a graph and the bundles on them."""

    __slots__ = ("_active", "_by_route", "_capacity", "_changed", "bundles")

    def __init__(self, capacity_bytes_per_s: list[float]) -> None:
        self._capacity = capacity_bytes_per_s
        self._active: list[dict[int, Bundle]] = [{} for _ in capacity_bytes_per_s]
        self._by_route: dict[tuple[int, ...], Bundle] = {}
        self._changed: dict[int, Bundle] = {}
        self.bundles: list[Bundle] = []

    @property
    def changed(self) -> bool:
        """Whether a transfer joined or left since the rates were last set."""
        return bool(self._changed)

    def join(self, rank: int, size_bytes: float, route: tuple[int, ...], now_s: float) -> None:
        """Begin a transfer; its rate is set by the next ``share``."""
        bundle = self._by_route.get(route)
        if bundle is None:
            bundle = self._by_route[route] = Bundle(len(self.bundles), route)
            self.bundles.append(bundle)
        bundle.advance(now_s)
        if not bundle.ends:
            bundle.served_bytes = 0.0
            for link in route:
                self._active[link][bundle.number] = bundle
        heappush(bundle.ends, (bundle.served_bytes + size_bytes, rank))
        self._changed[bundle.number] = bundle

    def leave(self, number: int, now_s: float) -> list[int]:
        """Return the ranks of the members of a bundle that end now, its earliest at least."""
        bundle = self.bundles[number]
        bundle.advance(now_s)
        ends = bundle.ends
        bundle.served_bytes = ends[0][0]
        limit = bundle.served_bytes * (1 + _SAME)
        ranks = []
        while ends and ends[0][0] <= limit:
            ranks.append(heappop(ends)[1])
        if not ends:
            bundle.rate_bytes_per_s = 0.0
            for link in bundle.route:
                del self._active[link][number]
        self._changed[number] = bundle
        return ranks

    def share(self, now_s: float) -> list[tuple[float, int]]:
        """Set the rates around all changes; return (time, bundle) of ends that moved."""
        moved = []
        for bundle in self._fill(self._touched(), now_s):
            wake = now_s + max(bundle.ends[0][0] - bundle.served_bytes, 0.0) / bundle.rate_bytes_per_s
            if wake != bundle.wake_s:
                bundle.wake_s = wake
                moved.append((wake, bundle.number))
        self._changed.clear()
        return moved

    def _touched(self) -> list[Bundle]:
        """Return the bundles that share links, directly or through others, with one that changed."""
        found: dict[int, Bundle] = dict(self._changed)
        stack = list(found.values())
        seen: set[int] = set()
        while stack:
            for link in stack.pop().route:
                if link not in seen:
                    seen.add(link)
                    for number, other in self._active[link].items():
                        if number not in found:
                            found[number] = other
                            stack.append(other)
        return [found[number] for number in sorted(found) if found[number].ends]

    def _fill(self, bundles: list[Bundle], now_s: float) -> list[Bundle]:
        """Set max-min fair rates of bundles that share links with no others; return them."""
        if len(bundles) == 1:
            (bundle,) = bundles
            bundle.advance(now_s)
            bundle.rate_bytes_per_s = min(self._capacity[link] for link in bundle.route) / len(bundle.ends)
            return bundles
        room: dict[int, float] = {}
        members: dict[int, int] = {}
        for bundle in bundles:
            bundle.advance(now_s)
            for link in bundle.route:
                room[link] = self._capacity[link]
                members[link] = members.get(link, 0) + len(bundle.ends)
        open_numbers = {bundle.number for bundle in bundles}
        while open_numbers:
            narrow = min(members, key=lambda link: (room[link] / members[link], link))
            rate = room[narrow] / members[narrow]
            for number, bundle in self._active[narrow].items():
                if number in open_numbers:
                    open_numbers.discard(number)
                    bundle.rate_bytes_per_s = rate
                    for link in bundle.route:
                        room[link] = max(room[link] - rate * len(bundle.ends), 0.0)
                        members[link] -= len(bundle.ends)
                        if not members[link]:
                            del members[link]
        return bundles
