"""Bundles that meet on links, and the rates of all of them as transfers come and go.

The rates of a pool depend on nothing but how many members each of its bundles has, and a step of training comes back to
the same few states over and over. So a small pool remembers the rates of every state that it, or another one of its
shape, has been in. In a large one only what a change can reach is filled anew: bundles that meet it on full links,
directly or through others. A link that nobody fills passes nothing on, so that a network without oversubscription falls
apart into its ports.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from heapq import heappop, heappush

from forerun.simulator.events.engine.bundles import SAME, Bundle, fill

_STATES = 20_000
"""States that a pool remembers before it begins anew, so that memory does not grow with the number of tasks."""
_FULL = 1 - 1e-9
"""Share of its capacity from which on a link counts as full; above the roundings of many small changes."""
_DIGIT = 24
"""Bits that the members of one bundle have in the state of a pool, which is one whole number."""
_FEW = 12
"""Bundles up to which neighbours are taken along without asking whether they feel the change: that costs less."""


Rates = tuple[tuple[int, float], ...]
"""Bundles by their place in a pool, and their rates."""
States = dict[int, tuple[float, Rates]]
"""What a pool knows of the states that it, or one like it, has been in: the rate of all, or 0 and that of each."""


class PoolOfOne:
    """A bundle that meets no other."""

    __slots__ = ("_bundle", "_whole", "asked_s", "changed", "number", "wake_s")

    def __init__(self, number: int, bundles: Sequence[Bundle], capacity_bytes_per_s: Sequence[float]) -> None:
        (self._bundle,) = bundles
        self.number = number
        self.changed = False
        self.wake_s = self.asked_s = math.inf
        self._whole = min(
            capacity_bytes_per_s[link] / weight
            for link, weight in zip(self._bundle.route, self._bundle.weights, strict=True)
        )

    def join(self, bundle: Bundle, rank: int, size_bytes: float, now_s: float) -> None:
        """Begin a transfer."""
        bundle.join(rank, size_bytes, now_s)

    def leave(self, now_s: float) -> list[int]:
        """Return the ranks of the members that end now, the earliest at least."""
        ranks: list[int] = []
        self._bundle.leave(now_s, ranks)
        return ranks

    def share(self, now_s: float) -> float:
        """Set the rates; return when the next member ends."""
        members = len(self._bundle.ends)
        return self._bundle.pace(self._whole / members, now_s) if members else math.inf


class PoolOfFew:
    """Bundles that meet, few enough to tell their state at a glance.

    While all of them have one rate, as when they wait for one full link, they go by one *clock*: the bytes that any
    member has been served. A member ends where the clock comes to the *head* of its bundle, so that a change touches
    nothing but its own bundle. Where rates differ every bundle goes by itself.
    """

    __slots__ = (
        "_bundles",
        "_capacity",
        "_clock_bytes",
        "_heads",
        "_known",
        "_links",
        "_one",
        "_rate",
        "_rates",
        "_since_s",
        "_state",
        "_together",
        "asked_s",
        "changed",
        "number",
        "wake_s",
    )

    def __init__(
        self, number: int, bundles: Sequence[Bundle], capacity_bytes_per_s: Sequence[float], known: States
    ) -> None:
        self.number = number
        self.changed = False
        self.wake_s = self.asked_s = math.inf
        self._bundles = bundles
        self._capacity = capacity_bytes_per_s
        self._known = known
        users: dict[int, list[tuple[Bundle, float]]] = {}
        for bundle in bundles:
            for link, weight in zip(bundle.route, bundle.weights, strict=True):
                users.setdefault(link, []).append((bundle, weight))
        self._links = [(capacity_bytes_per_s[link], crossing) for link, crossing in users.items()]
        self._state = 0
        self._one = [1 << _DIGIT * place for place in range(len(bundles))]
        self._rates: Rates = ()
        self._together = True
        self._clock_bytes = self._since_s = self._rate = 0.0
        self._heads = [math.inf] * len(bundles)
        for place, bundle in enumerate(bundles):
            bundle.place = place

    def join(self, bundle: Bundle, rank: int, size_bytes: float, now_s: float) -> None:
        """Begin a transfer."""
        ends, place = bundle.ends, bundle.place
        self._state += self._one[place]
        if self._together:
            self._clock_bytes = clock = self._clock_bytes + self._rate * (now_s - self._since_s)
            self._since_s = now_s
            if not ends:
                bundle.began_bytes = clock
            heappush(ends, (clock - bundle.began_bytes + size_bytes, rank))
            self._heads[place] = bundle.began_bytes + ends[0][0]
        else:
            bundle.join(rank, size_bytes, now_s)

    def leave(self, now_s: float) -> list[int]:
        """Return the ranks of the members that end now, the earliest at least."""
        ranks: list[int] = []
        if self._together:
            heads = self._heads
            self._clock_bytes, self._since_s = head, _ = min(heads), now_s
            limit = head * (1 + SAME)
            while head <= limit:
                place = heads.index(head)
                bundle = self._bundles[place]
                ends = bundle.ends
                ranks.append(heappop(ends)[1])
                heads[place] = bundle.began_bytes + ends[0][0] if ends else math.inf
                self._state -= self._one[place]
                head = min(heads)
        else:
            for place, _ in self._rates:
                bundle = self._bundles[place]
                if bundle.wake_s == now_s:
                    before = len(ranks)
                    bundle.leave(now_s, ranks)
                    self._state -= (len(ranks) - before) * self._one[place]
        return ranks

    def share(self, now_s: float) -> float:
        """Set the rates; return when the next member ends."""
        if not self._state:
            self._together, self._clock_bytes, self._rate = True, 0.0, 0.0
            return math.inf
        known = self._known.get(self._state)
        if known is None:
            known = self._learn()
        rate, self._rates = known
        if not rate:
            if self._together:
                self._part(now_s)
            return self._pace(now_s)
        if not self._together:
            self._meet(now_s)
        self._rate = rate
        left_bytes = min(self._heads) - self._clock_bytes
        return now_s + left_bytes / rate if left_bytes > 0 else now_s

    def _learn(self) -> tuple[float, Rates]:
        """Fill the links in a new state; return the rate of all bundles, or 0 and that of each where they differ."""
        if len(self._known) >= _STATES:
            self._known.clear()
        active = [bundle for bundle in self._bundles if bundle.ends]
        rates: Rates = ()
        rate, full = self._narrowest()
        if full < len(active):
            room = {link: self._capacity[link] for bundle in active for link in bundle.route}
            rate, rates = 0.0, tuple((bundle.place, own) for bundle, own in fill(active, room)[0])
        known = self._known[self._state] = rate, rates
        return known

    def _narrowest(self) -> tuple[float, int]:
        """Return the rate at which the first link is full, and the bundles that cross it."""
        lowest, crossing = math.inf, 0
        for capacity, users in self._links:
            members, active = 0.0, 0
            for bundle, weight in users:
                if bundle.ends:
                    members += len(bundle.ends) * weight
                    active += 1
            if active and (capacity / members, -active) < (lowest, -crossing):
                lowest, crossing = capacity / members, active
        return lowest, crossing

    def _part(self, now_s: float) -> None:
        """Let every bundle go by itself from now on."""
        self._together = False
        for place, bundle in enumerate(self._bundles):
            self._heads[place] = math.inf
            if bundle.ends:
                bundle.served_bytes = self._clock_bytes - bundle.began_bytes
                bundle.since_s, bundle.rate_bytes_per_s, bundle.wake_s = now_s, self._rate, -1.0

    def _meet(self, now_s: float) -> None:
        """Let all bundles go by one clock from now on."""
        self._together = True
        self._clock_bytes, self._since_s = 0.0, now_s
        for place, bundle in enumerate(self._bundles):
            if bundle.ends:
                served = bundle.served_bytes + bundle.rate_bytes_per_s * (now_s - bundle.since_s)
                bundle.began_bytes = -served
                self._heads[place] = bundle.ends[0][0] - served

    def _pace(self, now_s: float) -> float:
        """Let every bundle go on at its own rate; return when the next member ends."""
        soonest = math.inf
        for place, rate in self._rates:
            bundle = self._bundles[place]
            wake_s = bundle.wake_s
            if wake_s < 0 or rate != bundle.rate_bytes_per_s:
                wake_s = bundle.pace(rate, now_s)
            if wake_s < soonest:
                soonest = wake_s
        return soonest


class PoolOfMany:
    """Bundles that may all meet, of which a change reaches few."""

    __slots__ = (
        "_active",
        "_bundles",
        "_capacity",
        "_full",
        "_load",
        "_new",
        "_wakes",
        "asked_s",
        "changed",
        "number",
        "wake_s",
    )

    def __init__(self, number: int, bundles: Sequence[Bundle], capacity_bytes_per_s: Sequence[float]) -> None:
        self.number = number
        self.changed = False
        self.wake_s = self.asked_s = math.inf
        self._capacity = capacity_bytes_per_s
        self._bundles = {bundle.number: bundle for bundle in bundles}
        links = {link for bundle in bundles for link in bundle.route}
        self._load = dict.fromkeys(links, 0.0)
        self._full = dict.fromkeys(links, False)
        self._active: dict[int, dict[int, Bundle]] = {link: {} for link in links}
        self._new: dict[int, Bundle] = {}
        self._wakes: list[tuple[float, int]] = []

    def join(self, bundle: Bundle, rank: int, size_bytes: float, now_s: float) -> None:
        """Begin a transfer."""
        if not bundle.ends:
            for link in bundle.route:
                self._active[link][bundle.number] = bundle
        bundle.join(rank, size_bytes, now_s)
        self._new[bundle.number] = bundle

    def leave(self, now_s: float) -> list[int]:
        """Return the ranks of the members that end now, the earliest at least."""
        ranks: list[int] = []
        while self._wakes and self._wakes[0][0] <= now_s:
            wake_s, number = heappop(self._wakes)
            bundle = self._bundles[number]
            if bundle.wake_s == wake_s:
                bundle.leave(now_s, ranks)
                self._new[number] = bundle
                if not bundle.ends:
                    for link in bundle.route:
                        del self._active[link][number]
        return ranks

    def share(self, now_s: float) -> float:
        """Set the rates around all changes; return when the next member ends."""
        region: dict[int, Bundle] = {}
        self._reach(region, self._new.values())
        self._new.clear()
        while True:
            rates, full = self._rates(region)
            beside = [other for link in full for number, other in self._active[link].items() if number not in region]
            if not beside:
                break
            self._reach(region, beside)
        for bundle, rate in rates:
            before_s = bundle.wake_s
            if before_s < 0 or rate != bundle.rate_bytes_per_s:
                wake_s = bundle.pace(rate, now_s)
                if wake_s != before_s:
                    heappush(self._wakes, (wake_s, bundle.number))
        self._count(region.values())
        wakes, bundles = self._wakes, self._bundles
        while wakes and bundles[wakes[0][1]].wake_s != wakes[0][0]:
            heappop(wakes)
        return wakes[0][0] if wakes else math.inf

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

    def _rates(self, region: dict[int, Bundle]) -> tuple[list[tuple[Bundle, float]], list[int]]:
        """Return rates of a region in what the others leave of its links, and the links that get full."""
        room: dict[int, float] = {}
        for bundle in region.values():
            load = bundle.load_bytes_per_s
            for link, weight in zip(bundle.route, bundle.weights, strict=True):
                room[link] = room.get(link, self._capacity[link] - self._load[link]) + load * weight
        return fill([bundle for bundle in region.values() if bundle.ends], room)

    def _count(self, region: Collection[Bundle]) -> None:
        """Bring the loads of links up to date with the rates of a region."""
        load = self._load
        for bundle in region:
            now = bundle.rate_bytes_per_s * len(bundle.ends)
            more = now - bundle.load_bytes_per_s
            bundle.load_bytes_per_s = now
            for link, weight in zip(bundle.route, bundle.weights, strict=True):
                load[link] = load[link] + more * weight if self._active[link] else 0.0
        for bundle in region:
            for link in bundle.route:
                self._full[link] = load[link] >= self._capacity[link] * _FULL
