"""Analysis of trace files: every result of a replay, with its critical path and its slow messages."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from forerun.simulator.replay.clocks import align, unaligned
from forerun.simulator.replay.graph import GAP, JOIN, KINDS, ReplayGraph, build_graphs
from forerun.simulator.replay.learned import LearnedOverlap, LinkUse, link_uses, overlap_factors, served_exchanges
from forerun.simulator.replay.matching import MatchedMessage, match
from forerun.simulator.replay.readers.reading import Reading, read_traces
from forerun.simulator.replay.replay import Replay, replay
from forerun.simulator.replay.shares import RankUse, blame, rank_uses
from forerun.simulator.replay.stragglers import Straggler, stragglers
from forerun.simulator.replay.trace import Floats, RankTrace

_WORDS = {**dict(enumerate(KINDS)), GAP: "host", JOIN: "communication"}
_WORDS.update({3: "communication", 4: "communication", 5: "communication"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPart:
    """One name on one rank along the critical path: ``count`` tasks, ``seconds`` of all steps."""

    name: str
    kind: str
    rank: int
    count: int
    seconds: float


def path_parts(result: Replay) -> tuple[PathPart, ...]:
    """Return the critical path by name and rank, longest first; seconds add up to the replayed run."""
    seconds: dict[tuple[str, str, int], float] = defaultdict(float)
    count: dict[tuple[str, str, int], int] = defaultdict(int)
    graph, now_s = result.graph, 0.0
    places = {trace.rank: place for place, trace in enumerate(graph.traces)}
    for task in result.path:
        kind, rank = graph.graph.kind[task], int(graph.rank[task])
        end_s = result.run.end_s[task]
        if kind != JOIN:
            trace = graph.traces[places[rank]]
            span = graph.graph.tag[task][0]
            assert isinstance(span, int)
            word = "host" if kind == GAP else trace.title(span)
            key = ("between operators" if kind == GAP else word, _WORDS[kind], rank)
            seconds[key] += end_s - now_s
            count[key] += 1
        now_s = end_s
    parts = [
        PathPart(name=name, kind=kind, rank=rank, count=count[name, kind, rank], seconds=value)
        for (name, kind, rank), value in seconds.items()
    ]
    return tuple(sorted(parts, key=lambda part: (-part.seconds, part.name, part.rank)))


_FEWEST = 4
"""Smallest number of similar messages that define the usual duration."""
_FACTOR, _LEAST_SHARE = 2.0, 0.01
"""Multiple of the median, and lost share of a step, from which a message is an outlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowMessage:
    """One message that took much longer than similar ones, because of congestion, a retry or a busy host.

    ``took_s``: duration from the last arrival; ``usual_s``: median of similar messages (same operation, bytes and
    ranks); ``at_s``: time since the start of the run.
    """

    operation: str
    ranks: tuple[int, ...]
    size_bytes: float
    step: int
    at_s: float
    took_s: float
    usual_s: float


def slow_messages(graph: ReplayGraph) -> tuple[SlowMessage, ...]:
    """Return the outliers, largest loss first."""
    by_kind: dict[tuple[object, ...], list[tuple[MatchedMessage, float]]] = defaultdict(list)
    for one, took_s in served_exchanges(graph):
        ranks = tuple(graph.traces[place].rank for place, _ in one.members)
        by_kind[one.operation, str(one.size_bytes), ranks].append((one, took_s))
    least_s = _LEAST_SHARE * float(graph.finish_s[-1]) / len(graph.finish_s)
    slow = []
    for messages in by_kind.values():
        usual_s = float(np.median([took_s for _, took_s in messages]))
        for one, took_s in messages if len(messages) >= _FEWEST else ():
            if took_s > _FACTOR * usual_s and took_s - usual_s > least_s:
                place, span = one.members[0]
                slow.append(
                    SlowMessage(
                        operation="send and receive" if one.operation == "pair" else one.operation,
                        ranks=tuple(graph.traces[member].rank for member, _ in one.members),
                        size_bytes=one.size_bytes,
                        step=int(graph.traces[place].step[span]),
                        at_s=float(graph.start_s[place][span]),
                        took_s=took_s,
                        usual_s=usual_s,
                    )
                )
    return tuple(sorted(slow, key=lambda one: (one.usual_s - one.took_s, one.at_s)))


Phase = Callable[[str, int, int], None]
"""Progress callback with the current phase and the numbers of finished and of all phases."""
PHASES = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """A replayed run and its results; see the classes of the parts.

    ``averaged``: the same graph with the mean duration over steps for every task; ``paced``: the mean times the pace of
    the task's rank in its step; both None for a single step. ``blame_s``: seconds per step that each rank (row) waits
    for each other one (column).
    """

    replay: Replay
    averaged: Replay | None
    paced: Replay | None
    uses: tuple[RankUse, ...]
    blame_s: Floats
    stragglers: tuple[Straggler, ...]
    overlaps: tuple[LearnedOverlap, ...]
    links: tuple[LinkUse, ...]
    slow_messages: tuple[SlowMessage, ...]
    path: tuple[PathPart, ...]


def analyse_files(
    paths: Sequence[Path], *, aligned: bool = True, reading: Reading | None = None, phase: Phase | None = None
) -> Analysis:
    """Read, align, replay and analyse; ``reading`` and ``phase`` are progress callbacks.

    Raises:
        RequestError: as for ``read_traces`` and ``replay``.
    """
    return analyse(read_traces(paths, reading), aligned=aligned, phase=phase)


def analyse(traces: Sequence[RankTrace], *, aligned: bool = True, phase: Phase | None = None) -> Analysis:
    """Align the clocks of traces if ``aligned``, replay the traces and analyse the replay.

    Raises:
        RequestError: spans wait for each other in a cycle.
    """
    say = phase or (lambda words, done, of: None)
    say("matching messages", 0, PHASES)
    matching = match(traces)
    say("aligning clocks", 1, PHASES)
    clocks = align(traces, matching.exchanges) if aligned else unaligned(len(traces))
    say("building the graph", 2, PHASES)
    graph, *others = build_graphs(traces, matching, clocks)
    say("replaying", 3, PHASES)
    result = replay(graph)
    say("replaying on even steps", 4, PHASES)
    averaged, paced = (replay(other) if len(graph.finish_s) > 1 else None for other in others)
    say("looking for who waits for whom", 5, PHASES)
    blamed, uses, laggards = blame(graph), rank_uses(graph), stragglers(graph)
    say("looking at messages", 6, PHASES)
    return Analysis(
        replay=result,
        averaged=averaged,
        paced=paced,
        uses=uses,
        blame_s=blamed,
        stragglers=laggards,
        overlaps=overlap_factors(graph),
        links=link_uses(graph),
        slow_messages=slow_messages(graph),
        path=path_parts(result),
    )
