"""How every rank spent the run: computing, in communication that nothing covers, held up by its host, or idle."""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.intervals import covered, joined, length, outside, union
from forerun.simulator.replay.trace import MESSAGES, Floats, Place, SpanKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RankUse:
    """Seconds per step of one rank; they add up to the step.

    ``compute_s``: kernels, or operators where the host computes. ``exposed_s``: messages under way, nothing computed;
    ``waiting_s`` of it for ranks that had not come yet. ``host_s``: nothing runs since the host has not launched it.
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
    late = _last_start(graph)
    steps = len(graph.finish_s)
    whole_s = float(graph.finish_s[-1])
    uses = []
    for place, trace in enumerate(graph.traces):
        start_s, end_s = graph.start_s[place], graph.end_s[place]
        working = np.isin(trace.kind, (SpanKind.COMPUTE, SpanKind.COPY))
        moving = np.isin(trace.kind, MESSAGES)
        compute = union(start_s[working], end_s[working])
        messages = union(start_s[moving], end_s[moving])
        busy = joined(compute, messages)
        waits = union(start_s[moving], np.minimum(late[place][moving], end_s[moving]))
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
    """Return [ranks, ranks]: seconds per step that one rank (row) waits with nothing to compute for another (column),
    which came last. A moment counts once, however many exchanges are waited for; rows add up to ``waiting_s``."""
    last: list[dict[int, list[tuple[float, float]]]] = [{} for _ in graph.traces]
    for one in graph.matching.exchanges:
        late_s, late = max((float(graph.start_s[place][span]), place) for place, span in one.members)
        for place, span in one.members:
            begin_s = float(graph.start_s[place][span])
            end_s = min(late_s, float(graph.end_s[place][span]))
            if end_s > begin_s:
                last[place].setdefault(late, []).append((begin_s, end_s))
    found = np.zeros((len(graph.traces),) * 2)
    for place, trace in enumerate(graph.traces):
        working = np.isin(trace.kind, (SpanKind.COMPUTE, SpanKind.COPY))
        taken = union(graph.start_s[place][working], graph.end_s[place][working])
        waits = {late: union(*np.array(spans).T) for late, spans in last[place].items()}
        # Where two are waited for at once, the one that is waited for longer in all has the moment.
        for late, own in sorted(waits.items(), key=lambda pair: -length(pair[1])):
            found[place, late] = outside(own, taken) / len(graph.finish_s)
            taken = joined(taken, own)
    return found


def _last_start(graph: ReplayGraph) -> list[Floats]:
    """Return, per trace, for every span when the last member of its exchange came; its own start elsewhere."""
    late = [start.copy() for start in graph.start_s]
    for one in graph.matching.exchanges:
        last = max(float(graph.start_s[place][span]) for place, span in one.members)
        for place, span in one.members:
            late[place][span] = last
    return late


def _host_s(graph: ReplayGraph, place: int, busy: Floats) -> float:
    """Return the seconds for which neither device nor network had anything to do and the host was the reason."""
    trace, start_s, end_s = graph.traces[place], graph.start_s[place], graph.end_s[place]
    if not trace.has_device:
        # Where the host computes, what it does between operators is the interpreter's.
        active = union(np.array([start_s.min()]), np.array([end_s.max()]))
        return outside(active, busy)
    on_device = np.array([spot == Place.DEVICE for spot in trace.places])[trace.lane]
    launched = np.flatnonzero(on_device & (trace.cause >= 0))
    if not len(launched) or not len(busy):
        return 0.0
    # The first span behind a moment at which all was idle: the idle time up to its launch is the host's.
    launched = launched[np.argsort(start_s[launched], kind="stable")]
    first = np.searchsorted(start_s[launched], busy[1:, 0])
    first = launched[np.minimum(first, len(launched) - 1)]
    launch_s = end_s[trace.cause[first]]
    idle_from, idle_to = busy[:-1, 1], busy[1:, 0]
    held = launch_s > idle_from
    return float((idle_to - idle_from)[held].sum())


def overlapped_s(graph: ReplayGraph, place: int) -> Floats:
    """Return how many seconds of every span of one rank messages of that rank were under way."""
    trace = graph.traces[place]
    moving = np.isin(trace.kind, MESSAGES)
    under_way = union(graph.start_s[place][moving], graph.end_s[place][moving])
    return covered(under_way, graph.start_s[place], graph.end_s[place])
