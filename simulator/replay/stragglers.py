"""Ranks that hold up the others: which, by how much a step, and since when."""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.replay.graph import GAP, ReplayGraph
from forerun.simulator.replay.trace import Floats, Kind, Place

_LEAST_SHARE = 0.02
"""Share of a step that a rank's own work must exceed the median rank's by."""
_LEAST_NOISE = 4.0
"""The same in robust standard deviations of all ranks and steps."""
_STEPS_EACH = 2
"""Steps that a change must last for, and have been absent for, to be dated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """``excess_s``: its own work of a step beyond the median rank's. ``caused_s``: seconds of a step for which
    exchanges waited for this rank alone. ``since_step``: first step of it (0: from the first), ``since_s`` into the
    run."""

    rank: int
    excess_s: float
    caused_s: float
    since_step: int
    since_s: float


def stragglers(graph: ReplayGraph) -> tuple[Straggler, ...]:
    """Return the stragglers, worst first; with fewer than three ranks the faster one is the measure."""
    if len(graph.traces) < 2:
        return ()
    work = _work(graph)
    reference = np.median(work, axis=0) if len(work) > 2 else work.min(axis=0)
    excess = work - reference
    step_s = float(graph.finish_s[-1]) / len(graph.finish_s)
    noise_s = 1.4826 * float(np.median(np.abs(excess - np.median(excess, axis=1, keepdims=True))))
    caused = _caused(graph)
    begun = np.concatenate([[0.0], graph.finish_s[:-1]])
    found = []
    for place, trace in enumerate(graph.traces):
        since = _since(excess[place])
        level_s = float(np.median(excess[place][since:]))
        if level_s > max(_LEAST_SHARE * step_s, _LEAST_NOISE * noise_s / np.sqrt(max(work.shape[1] - since, 1))):
            found.append(
                Straggler(
                    rank=trace.rank,
                    excess_s=level_s,
                    caused_s=caused[place] / len(graph.finish_s),
                    since_step=since,
                    since_s=float(begun[since]),
                )
            )
    return tuple(sorted(found, key=lambda one: -one.excess_s))


def _work(graph: ReplayGraph) -> Floats:
    """Return [ranks, steps]: seconds of what a rank does on its own, waits for others left out."""
    steps = len(graph.finish_s)
    work = np.zeros((len(graph.traces), steps))
    durations = np.array(graph.graph.duration_s)
    kinds = np.array(graph.graph.kind)
    for place, trace in enumerate(graph.traces):
        own = np.isin(trace.kind, (Kind.COMPUTE, Kind.COPY))
        np.add.at(work[place], trace.step[own], durations[graph.task[place][own]])
        if not trace.has_device:
            hosts = [lane for lane, spot in zip(graph.lanes[place], trace.places, strict=True) if spot == Place.HOST]
            gaps = np.flatnonzero((kinds == GAP) & np.isin(graph.graph.stream, hosts) & (graph.step >= 0))
            # The first gap of a lane is when its rank began.
            np.add.at(work[place], graph.step[gaps[1:]], durations[gaps[1:]])
    return work


def _caused(graph: ReplayGraph) -> Floats:
    """Return for every trace the seconds between its coming last to exchanges and the last but one."""
    caused = np.zeros(len(graph.traces))
    for one in graph.matching.exchanges:
        coming = sorted((float(graph.start_s[place][span]), place) for place, span in one.members)
        if one.synchronising:
            caused[coming[-1][1]] += coming[-1][0] - coming[-2][0]
    return caused


def _since(excess: Floats) -> int:
    """Return the step at which a series rises from one level to another, 0 where one level tells it as well."""
    steps = len(excess)
    if steps < 2 * _STEPS_EACH:
        return 0
    whole = float(np.square(excess - excess.mean()).sum())
    best, since = 0.5 * whole, 0
    for cut in range(_STEPS_EACH, steps - _STEPS_EACH + 1):
        low, high = excess[:cut], excess[cut:]
        if high.mean() <= low.mean():
            continue
        left = float(np.square(low - low.mean()).sum() + np.square(high - high.mean()).sum())
        if left < best:
            best, since = left, cut
    return since
