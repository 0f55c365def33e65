"""Analysis of trace files: every result of a replay."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from forerun.simulator.replay.clocks import align, unaligned
from forerun.simulator.replay.graph import build_graphs
from forerun.simulator.replay.learned import LearnedOverlap, LinkUse, link_uses, overlap_factors
from forerun.simulator.replay.matching import match
from forerun.simulator.replay.outliers import SlowMessage, slow_messages
from forerun.simulator.replay.path import PathPart, path_parts
from forerun.simulator.replay.readers.reading import Reading, read_traces
from forerun.simulator.replay.replay import Replay, replay
from forerun.simulator.replay.shares import RankUse, blame, rank_uses
from forerun.simulator.replay.stragglers import Straggler, stragglers
from forerun.simulator.replay.trace import Floats, RankTrace

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
