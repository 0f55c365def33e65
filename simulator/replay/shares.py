"""Time of every rank in the run by use: computation, exposed communication, wait for the host, idle."""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.trace import MESSAGES, Booleans, Floats, Place, SpanKind

_MOSTLY = 0.5
"""Busy share of the time from the request of a message to its end at which a thread does not wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankUse:
    """Seconds per step of one rank; they sum to the step.

    ``compute_s``: kernels, or operators where the host computes. ``exposed_s``: messages under way without computation;
    ``waiting_s``: its part before the last rank arrives. ``host_s``: idle because the host has not launched work.
    ``idle_s``: the rest.
    """

    rank: int
    compute_s: float
    exposed_s: float
    waiting_s: float
    host_s: float
    idle_s: float


def rank_uses(graph: ReplayGraph) -> tuple[RankUse, ...]:
    """Return the use of every rank over the measured run."""
    came, late = arrivals(graph)
    steps = len(graph.finish_s)
    whole_s = float(graph.finish_s[-1])
    uses = []
    for place, trace in enumerate(graph.traces):
        end_s = graph.end_s[place]
        moving = np.isin(trace.kind, MESSAGES)
        compute = _computing(graph, place)
        messages = union(came[place][moving], end_s[moving])
        busy = joined(compute, messages)
        waits = union(came[place][moving], np.minimum(late[place][moving], end_s[moving]))
        host_s = _host_s(graph, place, busy)
        uses.append(
            RankUse(
                rank=trace.rank,
                compute_s=length(compute) / steps,
                exposed_s=outside(messages, compute) / steps,
                waiting_s=outside(waits, compute) / steps,
                host_s=host_s / steps,
                idle_s=max(whole_s - length(busy) - host_s, 0.0) / steps,
            )
        )
    return tuple(uses)


def blame(graph: ReplayGraph) -> Floats:
    """Return [ranks, ranks]: seconds per step that one rank (row) waits idle for another (column) that arrives last.

    A moment counts once, for any number of awaited exchanges; rows sum to ``waiting_s``.
    """
    last: list[dict[int, list[tuple[float, float]]]] = [{} for _ in graph.traces]
    came, _ = arrivals(graph)
    for one in graph.matching.exchanges:
        late_s, late = max((float(came[place][span]), place) for place, span in one.members)
        for place, span in one.members:
            begin_s = float(came[place][span])
            end_s = min(late_s, float(graph.end_s[place][span]))
            if end_s > begin_s:
                last[place].setdefault(late, []).append((begin_s, end_s))
    blamed = np.zeros((len(graph.traces),) * 2)
    for place in range(len(graph.traces)):
        taken = _computing(graph, place)
        waits = {late: union(*np.array(spans).T) for late, spans in last[place].items()}
        # Of two simultaneous waits, the longer one gets the moment.
        for late, intervals in sorted(waits.items(), key=lambda pair: -length(pair[1])):
            blamed[place, late] = outside(intervals, taken) / len(graph.finish_s)
            taken = joined(taken, intervals)
    return blamed


def working_spans(graph: ReplayGraph, place: int) -> Booleans:
    """Return the spans of a rank's own work.

    Own work is computation, copies and, where the host computes, calls that request messages. A last call whose thread
    mostly waits for its message is not own work, but part of the wait.
    """
    trace, start_s, end_s = graph.traces[place], graph.start_s[place], graph.end_s[place]
    working = np.isin(trace.kind, (SpanKind.COMPUTE, SpanKind.COPY))
    moving = np.flatnonzero(np.isin(trace.kind, MESSAGES) & (trace.cause >= 0))
    cause = trace.cause[moving]
    call = np.minimum(cause + 1, len(trace.kind) - 1)  # on its lane it follows the preceding span
    follows = (call > cause) & (trace.lane[call] == trace.lane[cause])
    noted = np.flatnonzero(follows & (trace.kind[call] == SpanKind.HOST))
    if trace.has_device or not len(noted):
        return working
    order = noted[np.argsort(start_s[call[noted]], kind="stable")]
    moving, call = moving[order], call[order]
    working[call] = True
    took_s = np.maximum(end_s[moving] - end_s[call], 0.0)
    busy_s = covered(union(start_s[working], end_s[working]), end_s[call], end_s[call] + took_s)
    last = np.append(start_s[call][1:], np.inf) >= end_s[moving]
    working[call[last & (busy_s < _MOSTLY * took_s)]] = False
    return working


def _computing(graph: ReplayGraph, place: int) -> Floats:
    """Return the intervals of a rank's own work."""
    working = working_spans(graph, place)
    return union(graph.start_s[place][working], graph.end_s[place][working])


def arrivals(graph: ReplayGraph) -> tuple[list[Floats], list[Floats]]:
    """Return, per trace and span, the arrival of its rank at its exchange, and the last member's arrival.

    A rank arrives when a host requests a message, not when a network thread starts it, which is milliseconds later on a
    busy host. On a device, arrival is the start of the message. Spans without an exchange have their own start.
    """
    came = [start.copy() for start in graph.start_s]
    for place, trace in enumerate(graph.traces):
        asked = np.array([spot == Place.NETWORK for spot in trace.places])[trace.lane] & (trace.cause >= 0)
        asked &= np.isin(trace.kind, MESSAGES)
        came[place][asked] = np.minimum(graph.end_s[place][trace.cause[asked]], came[place][asked])
    late = [start.copy() for start in came]
    for one in graph.matching.exchanges:
        last = max(float(came[place][span]) for place, span in one.members)
        for place, span in one.members:
            late[place][span] = last
    return came, late


def _host_s(graph: ReplayGraph, place: int, busy: Floats) -> float:
    """Return the seconds in which device and network were idle because of the host."""
    trace, start_s, end_s = graph.traces[place], graph.start_s[place], graph.end_s[place]
    if not trace.has_device:
        # Where the host computes, time between operators is the interpreter's.
        active = union(np.array([start_s.min()]), np.array([end_s.max()]))
        return outside(active, busy)
    on_device = np.array([spot == Place.DEVICE for spot in trace.places])[trace.lane]
    launched = np.flatnonzero(on_device & (trace.cause >= 0))
    if not len(launched) or not len(busy):
        return 0.0
    # At the first span after a moment of idleness, the idle time up to its launch is the host's.
    launched = launched[np.argsort(start_s[launched], kind="stable")]
    first = np.searchsorted(start_s[launched], busy[1:, 0])
    first = launched[np.minimum(first, len(launched) - 1)]
    launch_s = end_s[trace.cause[first]]
    idle_from, idle_to = busy[:-1, 1], busy[1:, 0]
    launch_bound = launch_s > idle_from
    return float((idle_to - idle_from)[launch_bound].sum())


def overlapped_s(graph: ReplayGraph, place: int) -> Floats:
    """Return the seconds of every span of one rank during which messages of that rank were under way."""
    trace = graph.traces[place]
    moving = np.isin(trace.kind, MESSAGES)
    under_way = union(graph.start_s[place][moving], graph.end_s[place][moving])
    return covered(under_way, graph.start_s[place], graph.end_s[place])


def union(start_s: Floats, end_s: Floats) -> Floats:
    """Return the union as disjoint intervals [m, 2] in order; empty intervals vanish."""
    kept = end_s > start_s
    start_s, end_s = start_s[kept], end_s[kept]
    if not len(start_s):
        return np.empty((0, 2))
    order = np.argsort(start_s, kind="stable")
    start_s, reach = start_s[order], np.maximum.accumulate(end_s[order])
    first = np.flatnonzero(np.concatenate([[True], start_s[1:] > reach[:-1]]))
    last = np.concatenate([first[1:] - 1, [len(start_s) - 1]])
    return np.column_stack([start_s[first], reach[last]])


def length(intervals: Floats) -> float:
    """Return the summed length of disjoint intervals."""
    return float((intervals[:, 1] - intervals[:, 0]).sum())


def joined(*parts: Floats) -> Floats:
    """Return the union of several sets of intervals."""
    every = np.concatenate(parts)
    return union(every[:, 0], every[:, 1])


def outside(intervals: Floats, others: Floats) -> float:
    """Return the length of disjoint intervals that no interval of another disjoint set covers."""
    return length(joined(intervals, others)) - length(others)


def covered(intervals: Floats, start_s: Floats, end_s: Floats) -> Floats:
    """Return the seconds of each [start, end] that disjoint intervals cover."""
    if not len(intervals):
        return np.zeros(len(start_s))
    before = np.concatenate([[0.0], np.cumsum(intervals[:, 1] - intervals[:, 0])])

    def reached(moment: Floats) -> Floats:
        place = np.searchsorted(intervals[:, 0], moment, side="right")
        partial = np.where(place > 0, np.minimum(moment, intervals[place - 1, 1]) - intervals[place - 1, 0], 0.0)
        return before[np.maximum(place - 1, 0)] + np.maximum(partial, 0.0)

    result: Floats = reached(end_s) - reached(start_s)
    return result
