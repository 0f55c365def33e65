"""Rates of the flow groups that share links, updated as transfers start and end.

The rates of a component depend only on the number of members of each flow group, and a training step returns to the
same few states many times. A small component therefore caches the rates of every state that a component of its shape
has been in. In a large component only the region that a change can reach is filled again: flow groups that share full
links with it, directly or through others. A link that is never full couples no flows, so a network without
oversubscription splits into its ports."""

import math
from collections.abc import Collection, Iterable, Sequence
from heapq import heappop, heappush

from forerun.simulator.events.engine.flow_groups import SAME, FlowGroup, fill

_STATES = 20_000
"""Limit of cached states of a component, so that memory does not grow with the number of tasks."""
_FULL = 1 - 1e-9
"""Share of capacity from which a link counts as full, above the rounding of many small changes."""
_DIGIT = 24
"""Bits for the members of one flow group in the state of a component, an integer."""
_FEW = 12
"""Number of flow groups up to which all neighbours are updated without a test, which would cost more."""


Rates = tuple[tuple[int, float], ...]
"""Flow groups by their index in a component, and their rates."""
States = dict[int, tuple[float, Rates]]
"""Cached states of a component or an equal one: the common rate, or 0 and the rate of each group."""


class ComponentOfOne:
    """A flow group that shares no link with another."""

    __slots__ = ("_flow_group", "_whole", "asked_s", "changed", "number", "wake_s")

    def __init__(self, number: int, flow_groups: Sequence[FlowGroup], capacity_bytes_per_s: Sequence[float]) -> None:
        (self._flow_group,) = flow_groups
        self.number = number
        self.changed = False
        self.wake_s = self.asked_s = math.inf
        self._whole = min(
            capacity_bytes_per_s[link] / weight
            for link, weight in zip(self._flow_group.route, self._flow_group.weights, strict=True)
        )

    def join(self, flow_group: FlowGroup, rank: int, size_bytes: float, now_s: float) -> None:
        """Start the transfer of member ``rank`` of a flow group."""
        flow_group.join(rank, size_bytes, now_s)

    def leave(self, now_s: float) -> list[int]:
        """Return the ranks of the members that end now (at least the earliest)."""
        ranks: list[int] = []
        self._flow_group.leave(now_s, ranks)
        return ranks

    def share(self, now_s: float) -> float:
        """Set the rates; return the time of the next member's end."""
        members = len(self._flow_group.ends)
        return self._flow_group.pace(self._whole / members, now_s) if members else math.inf


class ComponentOfFew:
    """A few flow groups that share links, with a state small enough to be a cache key.

    While all of them have one rate (they wait for the same full link), they share a *clock*: the bytes that every
    member has been served. A member ends when the clock reaches the *head* of its flow group, so a change affects only
    its own flow group. Where rates differ, every flow group has its own clock.
    """

    __slots__ = (
        "_capacity",
        "_clock_bytes",
        "_flow_groups",
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
        self, number: int, flow_groups: Sequence[FlowGroup], capacity_bytes_per_s: Sequence[float], known: States
    ) -> None:
        self.number = number
        self.changed = False
        self.wake_s = self.asked_s = math.inf
        self._flow_groups = flow_groups
        self._capacity = capacity_bytes_per_s
        self._known = known
        users: dict[int, list[tuple[FlowGroup, float]]] = {}
        for flow_group in flow_groups:
            for link, weight in zip(flow_group.route, flow_group.weights, strict=True):
                users.setdefault(link, []).append((flow_group, weight))
        self._links = [(capacity_bytes_per_s[link], crossing) for link, crossing in users.items()]
        self._state = 0
        # The state is a number whose digits count members: a join is one addition, and a cache access is one hash.
        self._one = [1 << _DIGIT * place for place in range(len(flow_groups))]
        self._rates: Rates = ()
        self._together = True
        self._clock_bytes = self._since_s = self._rate = 0.0
        self._heads = [math.inf] * len(flow_groups)
        for place, flow_group in enumerate(flow_groups):
            flow_group.place = place

    def join(self, flow_group: FlowGroup, rank: int, size_bytes: float, now_s: float) -> None:
        """Start the transfer of member ``rank`` of a flow group."""
        ends, place = flow_group.ends, flow_group.place
        self._state += self._one[place]
        if self._together:
            self._clock_bytes = clock = self._clock_bytes + self._rate * (now_s - self._since_s)
            self._since_s = now_s
            # A group that was empty starts at the clock's current value, since earlier service was not its own.
            if not ends:
                flow_group.began_bytes = clock
            heappush(ends, (clock - flow_group.began_bytes + size_bytes, rank))
            self._heads[place] = flow_group.began_bytes + ends[0][0]
        else:
            flow_group.join(rank, size_bytes, now_s)

    def leave(self, now_s: float) -> list[int]:
        """Return the ranks of the members that end now (at least the earliest)."""
        ranks: list[int] = []
        if self._together:
            heads = self._heads
            self._clock_bytes, self._since_s = head, _ = min(heads), now_s
            # Members whose ends differ only by rounding end together; otherwise each would cost an event.
            limit = head * (1 + SAME)
            while head <= limit:
                place = heads.index(head)
                flow_group = self._flow_groups[place]
                ends = flow_group.ends
                ranks.append(heappop(ends)[1])
                heads[place] = flow_group.began_bytes + ends[0][0] if ends else math.inf
                self._state -= self._one[place]
                head = min(heads)
        else:
            for place, _ in self._rates:
                flow_group = self._flow_groups[place]
                if flow_group.wake_s == now_s:
                    before = len(ranks)
                    flow_group.leave(now_s, ranks)
                    self._state -= (len(ranks) - before) * self._one[place]
        return ranks

    def share(self, now_s: float) -> float:
        """Set the rates; return the time of the next member's end."""
        # No transfer is under way: the clock is reset, which keeps its precision over a long run.
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
        """Fill the links in a new state; return the common rate of all flow groups, or 0 and the rate of each."""
        # Clearing the cache is simpler than dropping the oldest entry, and the states in use are soon computed again.
        if len(self._known) >= _STATES:
            self._known.clear()
        active = [flow_group for flow_group in self._flow_groups if flow_group.ends]
        rates: Rates = ()
        rate, full = self._narrowest()
        # All active groups cross the narrowest link: max-min fairness gives all of them its rate. Otherwise rates
        # differ, and the links are filled one after the other.
        if full < len(active):
            room = {link: self._capacity[link] for flow_group in active for link in flow_group.route}
            rate, rates = 0.0, tuple((flow_group.place, own) for flow_group, own in fill(active, room)[0])
        known = self._known[self._state] = rate, rates
        return known

    def _narrowest(self) -> tuple[float, int]:
        """Return the rate at which the first link is full, and the flow groups on that link."""
        lowest, crossing = math.inf, 0
        for capacity, users in self._links:
            members, active = 0.0, 0
            for flow_group, weight in users:
                if flow_group.ends:
                    members += len(flow_group.ends) * weight
                    active += 1
            if active and (capacity / members, -active) < (lowest, -crossing):
                lowest, crossing = capacity / members, active
        return lowest, crossing

    def _part(self, now_s: float) -> None:
        """Give every flow group a clock of its own."""
        self._together = False
        for place, flow_group in enumerate(self._flow_groups):
            self._heads[place] = math.inf
            if flow_group.ends:
                flow_group.served_bytes = self._clock_bytes - flow_group.began_bytes
                flow_group.since_s, flow_group.rate_bytes_per_s, flow_group.wake_s = now_s, self._rate, -1.0

    def _meet(self, now_s: float) -> None:
        """Give all flow groups one common clock."""
        self._together = True
        self._clock_bytes, self._since_s = 0.0, now_s
        for place, flow_group in enumerate(self._flow_groups):
            if flow_group.ends:
                # The common clock starts at zero, after the service of all groups so far.
                served = flow_group.served_bytes + flow_group.rate_bytes_per_s * (now_s - flow_group.since_s)
                flow_group.began_bytes = -served
                self._heads[place] = flow_group.ends[0][0] - served

    def _pace(self, now_s: float) -> float:
        """Continue every flow group at its own rate; return the time of the next member's end."""
        soonest = math.inf
        for place, rate in self._rates:
            flow_group = self._flow_groups[place]
            wake_s = flow_group.wake_s
            if wake_s < 0 or rate != flow_group.rate_bytes_per_s:
                wake_s = flow_group.pace(rate, now_s)
            if wake_s < soonest:
                soonest = wake_s
        return soonest


class ComponentOfMany:
    """Many flow groups that may share links; a change affects few of them."""

    __slots__ = (
        "_active",
        "_capacity",
        "_flow_groups",
        "_full",
        "_load",
        "_new",
        "_wakes",
        "asked_s",
        "changed",
        "number",
        "wake_s",
    )

    def __init__(self, number: int, flow_groups: Sequence[FlowGroup], capacity_bytes_per_s: Sequence[float]) -> None:
        self.number = number
        self.changed = False
        self.wake_s = self.asked_s = math.inf
        self._capacity = capacity_bytes_per_s
        self._flow_groups = {flow_group.number: flow_group for flow_group in flow_groups}
        links = {link for flow_group in flow_groups for link in flow_group.route}
        self._load = dict.fromkeys(links, 0.0)
        self._full = dict.fromkeys(links, False)
        self._active: dict[int, dict[int, FlowGroup]] = {link: {} for link in links}
        self._new: dict[int, FlowGroup] = {}
        self._wakes: list[tuple[float, int]] = []

    def join(self, flow_group: FlowGroup, rank: int, size_bytes: float, now_s: float) -> None:
        """Start the transfer of member ``rank`` of a flow group."""
        if not flow_group.ends:
            for link in flow_group.route:
                self._active[link][flow_group.number] = flow_group
        flow_group.join(rank, size_bytes, now_s)
        self._new[flow_group.number] = flow_group

    def leave(self, now_s: float) -> list[int]:
        """Return the ranks of the members that end now (at least the earliest)."""
        ranks: list[int] = []
        while self._wakes and self._wakes[0][0] <= now_s:
            wake_s, number = heappop(self._wakes)
            flow_group = self._flow_groups[number]
            if flow_group.wake_s == wake_s:  # otherwise its rate has changed, and a later entry has its end
                flow_group.leave(now_s, ranks)
                self._new[number] = flow_group
                if not flow_group.ends:
                    for link in flow_group.route:
                        del self._active[link][number]
        return ranks

    def share(self, now_s: float) -> float:
        """Set the rates around all changes; return the time of the next member's end."""
        region: dict[int, FlowGroup] = {}
        self._reach(region, self._new.values())
        self._new.clear()
        # New rates may fill a link that was not full and so change the rates of its other flows: repeat until none
        # changes.
        while True:
            rates, full = self._rates(region)
            beside = [other for link in full for number, other in self._active[link].items() if number not in region]
            if not beside:
                break
            self._reach(region, beside)
        for flow_group, rate in rates:
            before_s = flow_group.wake_s
            if before_s < 0 or rate != flow_group.rate_bytes_per_s:
                wake_s = flow_group.pace(rate, now_s)
                if wake_s != before_s:
                    heappush(self._wakes, (wake_s, flow_group.number))
        self._count(region.values())
        wakes, flow_groups = self._wakes, self._flow_groups
        while wakes and flow_groups[wakes[0][1]].wake_s != wakes[0][0]:
            heappop(wakes)
        return wakes[0][0] if wakes else math.inf

    def _reach(self, region: dict[int, FlowGroup], new: Iterable[FlowGroup]) -> None:
        """Add flow groups to a region, with all groups that share full links with them."""
        stack = list(new)
        for flow_group in stack:
            region[flow_group.number] = flow_group
        while stack:
            for link in stack.pop().route:
                if self._full[link] or len(region) < _FEW:
                    for number, other in self._active[link].items():
                        if number not in region:
                            region[number] = other
                            stack.append(other)

    def _rates(self, region: dict[int, FlowGroup]) -> tuple[list[tuple[FlowGroup, float]], list[int]]:
        """Return the rates of a region in the bandwidth that other flows leave, and the links that become full."""
        room: dict[int, float] = {}
        for flow_group in region.values():
            load = flow_group.load_bytes_per_s
            for link, weight in zip(flow_group.route, flow_group.weights, strict=True):
                room[link] = room.get(link, self._capacity[link] - self._load[link]) + load * weight
        return fill([flow_group for flow_group in region.values() if flow_group.ends], room)

    def _count(self, region: Collection[FlowGroup]) -> None:
        """Update the loads of links with the rates of a region."""
        load = self._load
        for flow_group in region:
            now = flow_group.rate_bytes_per_s * len(flow_group.ends)
            more = now - flow_group.load_bytes_per_s
            flow_group.load_bytes_per_s = now
            for link, weight in zip(flow_group.route, flow_group.weights, strict=True):
                # Exactly zero on an idle link: differences of many rates would leave a rounding error.
                load[link] = load[link] + more * weight if self._active[link] else 0.0
        for flow_group in region:
            for link in flow_group.route:
                self._full[link] = load[link] >= self._capacity[link] * _FULL
