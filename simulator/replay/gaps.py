"""The longest gaps between consecutive spans of a rank's computing lanes."""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.trace import Place, SpanKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A lane without work for ``seconds``, ``at_s`` after the start of the run, between two spans."""

    rank: int
    lane: str
    step: int
    at_s: float
    seconds: float
    behind: str
    before: str


def largest_gaps(graph: ReplayGraph, count: int) -> tuple[Gap, ...]:
    """Return the longest gaps of all computing lanes (of the device, where the rank has one), longest first."""
    gaps = []
    for place, trace in enumerate(graph.traces):
        where = Place.DEVICE if trace.has_device else Place.HOST
        for lane, name in enumerate(trace.lanes):
            spans = np.flatnonzero(trace.lane == lane)
            if trace.places[lane] is not where or not np.any(trace.kind[spans] == SpanKind.COMPUTE):
                continue
            spans = spans[np.argsort(graph.start_s[place][spans], kind="stable")]
            ended = np.maximum.accumulate(graph.end_s[place][spans])[:-1]
            idle = graph.start_s[place][spans][1:] - ended
            for number in np.argsort(-idle, kind="stable")[:count].tolist():
                if idle[number] > 0:
                    first, then = int(spans[number]), int(spans[number + 1])
                    gaps.append(
                        Gap(
                            rank=trace.rank,
                            lane=name,
                            step=int(trace.step[then]),
                            at_s=float(ended[number]),
                            seconds=float(idle[number]),
                            behind=trace.title(first),
                            before=trace.title(then),
                        )
                    )
    return tuple(sorted(gaps, key=lambda gap: (-gap.seconds, gap.rank, gap.at_s))[:count])
