"""Stragglers: ranks that delay the others, the delay per step, and its start."""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.events.engine.engine import execute
from forerun.simulator.replay.graph import GAP, ReplayGraph
from forerun.simulator.replay.shares import working_spans
from forerun.simulator.replay.trace import Floats, Integers, Place

_LEAST_SHARE = 0.02
"""Smallest excess of a rank's own work over the median rank's, as a share of a step."""
_LEAST_NOISE = 4.0
"""The same in robust standard deviations of all ranks and steps."""
_STEPS_EACH = 2
"""Steps for which a change must last, and be absent before, to be dated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """One straggler.

    ``excess_s``: its own work per step beyond the median rank's. ``caused_s``: mean reduction of all steps if it had
    the median rank's work, the time that the others lose to it. ``since_step``: its first slow step (0: from the
    start), ``since_s`` after the start of the run.
    """

    rank: int
    excess_s: float
    caused_s: float
    since_step: int
    since_s: float


def stragglers(graph: ReplayGraph) -> tuple[Straggler, ...]:
    """Return the stragglers, worst first; with fewer than three ranks the faster one is the reference."""
    if len(graph.traces) < 2:
        return ()
    work = _work(graph)
    reference = np.median(work, axis=0) if len(work) > 2 else work.min(axis=0)
    excess = work - reference
    step_s = float(graph.finish_s[-1]) / len(graph.finish_s)
    noise_s = 1.4826 * float(np.median(np.abs(excess - np.median(excess, axis=1, keepdims=True))))
    begun = np.concatenate([[0.0], graph.finish_s[:-1]])
    slow = []

    def least_s(steps: int) -> float:
        return max(_LEAST_SHARE * step_s, _LEAST_NOISE * noise_s / float(np.sqrt(max(steps, 1))))

    for place, trace in enumerate(graph.traces):
        since = _since(excess[place])
        if float(np.median(excess[place][:since] if since else 0.0)) > least_s(since):
            since = 0  # it was one before, too
        level_s = float(np.median(excess[place][since:]))
        if level_s > least_s(work.shape[1] - since):
            slow.append(
                Straggler(
                    rank=trace.rank,
                    excess_s=level_s,
                    caused_s=_lost_s(graph, place, work[place], reference),
                    since_step=since,
                    since_s=float(begun[since]),
                )
            )
    return tuple(sorted(slow, key=lambda one: -one.excess_s))


def _work(graph: ReplayGraph) -> Floats:
    """Return [ranks, steps]: seconds of a rank's own work, without waits for others."""
    work = np.zeros((len(graph.traces), len(graph.finish_s)))
    durations = np.array(graph.graph.duration_s)
    for place in range(len(graph.traces)):
        tasks = _own_tasks(graph, place)
        np.add.at(work[place], graph.step[tasks], durations[tasks])
    return work


def _own_tasks(graph: ReplayGraph, place: int) -> Integers:
    """Return the tasks of a rank's own work; where the host computes, gaps between operators are work."""
    trace = graph.traces[place]
    tasks = graph.task[place][working_spans(graph, place)]
    if trace.has_device:
        return tasks
    hosts = [lane for lane, spot in zip(graph.lanes[place], trace.places, strict=True) if spot == Place.HOST]
    gap = (np.array(graph.graph.kind) == GAP) & np.isin(graph.graph.stream, hosts) & (graph.step >= 0)
    # The first gap of a lane is the start of its rank.
    return np.concatenate([tasks, np.flatnonzero(gap)[1:]])


def _lost_s(graph: ReplayGraph, place: int, work: Floats, reference: Floats) -> float:
    """Return the reduction of each step in a replay in which one rank's work is at most the reference."""
    durations = graph.graph.duration_s
    measured, tasks = durations[:], _own_tasks(graph, place)
    pace = np.minimum(reference / np.maximum(work, 1e-30), 1.0)
    before_s = execute(graph.graph).makespan_s
    for task, step in zip(tasks.tolist(), graph.step[tasks].tolist(), strict=True):
        durations[task] *= float(pace[step])
    try:
        return (before_s - execute(graph.graph).makespan_s) / len(graph.finish_s)
    finally:
        durations[:] = measured


def _since(excess: Floats) -> int:
    """Return the step at which a series changes from one level to another, 0 where one level fits as well."""
    steps = len(excess)
    if steps < 2 * _STEPS_EACH:
        return 0
    total = float(np.square(excess - excess.mean()).sum())
    best, since = 0.5 * total, 0
    for cut in range(_STEPS_EACH, steps - _STEPS_EACH + 1):
        low, high = excess[:cut], excess[cut:]
        if high.mean() <= low.mean():
            continue
        left = float(np.square(low - low.mean()).sum() + np.square(high - high.mean()).sum())
        if left < best:
            best, since = left, cut
    return since
