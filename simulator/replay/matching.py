"""Matching of the spans of different ranks that belong to one exchange.

A send and its receive share source, destination and tag; members of a collective share their ranks and label. The k-th
span of a step on one rank matches the k-th of that step on the others, since a communicator keeps its order. Where a
trace names no group (gloo), the groups set up in the run are tried: it is the group whose members all have the same
operation and size next.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from forerun.simulator.replay.trace import RankTrace, SpanKind, SpanMessage

SYNCHRONISING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "push_pull"})
"""Collectives that no member leaves before all have entered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedMessage:
    """One message.

    ``members``: (index of the trace, span); a send precedes its receive. ``size``: number of participating ranks,
    traced or not.
    """

    operation: str
    size_bytes: float
    size: int
    members: tuple[tuple[int, int], ...]

    @property
    def synchronising(self) -> bool:
        """Whether every member must wait for the start of the last one."""
        return self.operation in SYNCHRONISING


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """``exchanges``, and the number of messages without a partner among the traces."""

    exchanges: tuple[MatchedMessage, ...]
    unmatched: int


_Key = tuple[object, ...]


def match(traces: Sequence[RankTrace]) -> Matching:
    """Return all exchanges, in order of the first trace with a part in them."""
    places = {trace.rank: place for place, trace in enumerate(traces)}
    by_key: dict[_Key, list[tuple[int, int]]] = defaultdict(list)
    facts: dict[_Key, tuple[SpanMessage, int]] = {}
    open_groups: list[list[tuple[int, SpanMessage]]] = []
    for place, trace in enumerate(traces):
        counts: dict[_Key, int] = defaultdict(int)
        unknown = []
        for span in _in_order(trace):
            message = trace.messages[span]
            ranks = message.ranks if message.ranks is not None else _only_group(trace, traces)
            if ranks is None:
                unknown.append((span, message))
                continue
            word = "pair" if trace.kind[span] in (SpanKind.SEND, SpanKind.RECEIVE) else message.operation
            start: _Key = (word, ranks, message.label, int(trace.step[span]), trace.kind[span] == SpanKind.RECEIVE)
            counts[start] += 1
            key = (*start[:4], counts[start])
            by_key[key].append((place, span))
            facts.setdefault(key, (message, len(ranks)))
        open_groups.append(unknown)
    exchanges = [_exchange(key, by_key[key], traces, *facts[key]) for key in by_key]
    more, lost = _by_turns(traces, places, open_groups)
    matched = [one for one in [*exchanges, *more] if len(one.members) > 1]
    alone = sum(len(one.members) == 1 and one.size > 1 for one in [*exchanges, *more])
    return Matching(exchanges=tuple(matched), unmatched=alone + lost)


def _in_order(trace: RankTrace) -> list[int]:
    """Return the messages of a rank in the order of their requests."""
    asked = trace.start_s
    return sorted(trace.messages, key=lambda span: asked[cause] if (cause := trace.cause[span]) >= 0 else asked[span])


def _only_group(trace: RankTrace, traces: Sequence[RankTrace]) -> tuple[int, ...] | None:
    """Return the group of messages without a named group, where only one exists."""
    groups = [ranks for ranks in trace.groups if trace.rank in ranks]
    if len(groups) == 1:
        return groups[0]
    if groups:
        return None
    return tuple(range(trace.world)) if trace.world else tuple(other.rank for other in traces)


def _exchange(
    key: _Key, members: list[tuple[int, int]], traces: Sequence[RankTrace], message: SpanMessage, size: int
) -> MatchedMessage:
    """Put a send before its receive."""
    members = sorted(members, key=lambda one: (traces[one[0]].kind[one[1]] == SpanKind.RECEIVE, one))
    operation = "pair" if key[0] == "pair" else message.operation
    return MatchedMessage(operation=operation, size_bytes=message.size_bytes, size=size, members=tuple(members))


def _by_turns(
    traces: Sequence[RankTrace], places: dict[int, int], unknown: list[list[tuple[int, SpanMessage]]]
) -> tuple[list[MatchedMessage], int]:
    """Match messages of unknown groups."""
    # Of all groups whose members have the same operation and size next, take the group whose members end closest
    # together.
    queues = [deque(one) for one in unknown]
    groups = list(dict.fromkeys(ranks for trace in traces for ranks in trace.groups))
    made, lost = [], 0
    while any(queues):
        best: tuple[float, tuple[int, ...]] | None = None
        for ranks in groups:
            inside = [places[rank] for rank in ranks if rank in places]
            if not inside or not all(queues[place] for place in inside):
                continue
            if len({_look(queues[place][0][1]) for place in inside}) > 1:
                continue
            ends = [float(traces[place].end_s[queues[place][0][0]]) for place in inside]
            if len(ends) > 1 and (best is None or max(ends) - min(ends) < best[0]):
                best = (max(ends) - min(ends), ranks)
        if best is None:
            laggard = min(
                (place for place, queue in enumerate(queues) if queue), key=lambda place: _start(traces, queues, place)
            )
            queues[laggard].popleft()
            lost += 1
            continue
        members = []
        for place in sorted(places[rank] for rank in best[1] if rank in places):
            span, message = queues[place].popleft()
            members.append((place, span))
        made.append(
            MatchedMessage(
                operation=message.operation, size_bytes=message.size_bytes, size=len(best[1]), members=tuple(members)
            )
        )
    return made, lost


def _look(message: SpanMessage) -> tuple[str, float]:
    return message.operation, -1.0 if isnan(message.size_bytes) else message.size_bytes


def _start(traces: Sequence[RankTrace], queues: "list[deque[tuple[int, SpanMessage]]]", place: int) -> float:
    return float(traces[place].start_s[queues[place][0][0]])
