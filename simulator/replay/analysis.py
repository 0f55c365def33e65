"""From trace files to everything that a replay tells."""

from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """A replayed run and what it shows; see the classes of the parts. ``averaged``: the same graph with every task
    taking its mean over steps, ``paced``: that times the pace of its rank in its step; None for a single step.
    ``blame_s``: seconds per step that each rank (row) waits for each other one (column)."""

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


def analyse_files(paths: Sequence[Path], *, aligned: bool = True, reading: Reading | None = None) -> Analysis:
    """Read, align, replay and look.

    Raises:
        RequestError: as for ``read_traces`` and ``replay``.
    """
    return analyse(read_traces(paths, reading), aligned=aligned)


def analyse(traces: Sequence[RankTrace], *, aligned: bool = True) -> Analysis:
    """Align the clocks of traces (unless told not to), replay them and look.

    Raises:
        RequestError: spans wait for each other in a circle.
    """
    matching = match(traces)
    clocks = align(traces, matching.exchanges) if aligned else unaligned(len(traces))
    graph, *others = build_graphs(traces, matching, clocks)
    result = replay(graph)
    averaged, paced = (replay(other) if len(graph.finish_s) > 1 else None for other in others)
    return Analysis(
        replay=result,
        averaged=averaged,
        paced=paced,
        uses=rank_uses(graph),
        blame_s=blame(graph),
        stragglers=stragglers(graph),
        overlaps=overlap_factors(graph),
        links=link_uses(graph),
        slow_messages=slow_messages(graph),
        path=path_parts(result),
    )
