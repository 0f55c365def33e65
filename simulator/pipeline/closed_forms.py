"""Seconds of the pipelined part of a step: all microbatches through all stages, in closed form.

Each schedule has its own closed forms (``spaces/schedules``); a test compares them with the event engine.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.score_table import Floats
from forerun.spaces.schedules.catalogue import by_schedule, present, rounds_of
from forerun.spaces.schedules.stage_times import StageTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTime:
    """Time of a step of S pipelines, and the transfers in it, shape S each."""

    total_s: Floats
    """All microbatches through all stages, without transfers between stages."""
    busy_s: Floats
    """Passes of the slowest stage."""
    slowest: np.ndarray[tuple[int], np.dtype[np.intp]]
    """Index of its run."""
    exposed_p2p: Floats
    """Transfers in the critical path."""
    paths: tuple[Floats, Floats] | None = None
    """Seconds of paths through the schedule without transfers, and their transfers, [paths, S], where transfers do not
    block and paths are known; a path without seconds is not known."""
    sends: Floats
    """Transfers that occupy the busiest device's link during computation."""
    rounds: Floats
    """Virtual stages run in sequence (1 unless interleaved)."""
    group: Floats
    """Microbatches in each of these rounds."""
    spare_s: tuple[Floats, Floats] | None = None
    """Excess seconds of passes of an end of the pipeline, which sends in one direction only, over all other stages.
    During the excess no stage waits for a blocking transfer of the end: forward and backward of GPipe, their sum and 0
    of 1F1B; None if transfers do not block."""
    spared: Floats | None = None
    """Number of these passes in a step."""


def pipeline_time(
    stages: StageTimes,
    schedule: Floats,
    pp: Floats,
    vpp: Floats,
    microbatches: Floats,
    *,
    overlap: bool,
    paths: tuple[Floats, Floats] | None = None,
) -> PipelineTime:
    """Return the pipelined part of a step for S strategies.

    ``overlap``: steady-state sends run during computation; ``paths``: seconds and transfers of some paths through the
    schedule (``path_seconds``, ``zb_v_s``), [paths, S], where pipeline ranks alone do not determine the time.
    """
    # step = max over runs r of (m (f_r + b_r) + bubble_r): m microbatches of the slowest stage, which waits bubble_r
    # for the others. Where a path through the schedule is known, step = max(m (f + b), path).
    both = stages.forward_s + stages.backward_s
    bubbles = _bubbles_s(stages, schedule, pp, vpp, microbatches)
    finish = np.where(stages.multiplicity > 0, microbatches * both + bubbles, -1.0)
    # Stages that are equal up to rounding (all wait for their host) are ordered by number, not by chance.
    slowest = np.argmax(finish >= finish.max(axis=0) * (1 - 1e-12), axis=0)
    columns = np.arange(both.shape[1])
    pace, bubble = both[slowest, columns], bubbles[slowest, columns]
    busy = microbatches * pace
    least_s: Floats | float = 0.0 if paths is None else paths[0].max(axis=0)
    total = np.where(least_s > 0, np.maximum(busy, least_s), busy + bubble)
    spare_s, spared = (None, None) if overlap else _spared(stages, schedule, pp, microbatches)
    return PipelineTime(
        total_s=total,
        busy_s=busy,
        slowest=slowest,
        exposed_p2p=exposed_p2p_count(schedule, pp, vpp, microbatches, overlap=overlap),
        paths=_with_steady(stages, schedule, pp, microbatches, paths, total) if overlap else None,
        sends=np.where((pp > 1) & overlap, np.where((pp == 2) & (vpp == 1), 1.0, 2.0) * vpp * microbatches, 0.0),
        rounds=rounds_of(schedule, vpp),
        group=np.minimum(pp, microbatches),
        spare_s=spare_s,
        spared=spared,
    )


def _with_steady(
    stages: StageTimes,
    schedule: Floats,
    pp: Floats,
    microbatches: Floats,
    paths: tuple[Floats, Floats] | None,
    total_s: Floats,
) -> tuple[Floats, Floats]:
    """Return known paths, and two of schedules whose ranks wait for replies: of the slowest stages, and of all.

    ``total_s``: the step without transfers.
    """
    known = np.zeros((2, 0, len(pp))) if paths is None else np.stack(paths)
    seconds, transfers = np.concatenate([known, np.zeros((2, max(2 - known.shape[1], 0), len(pp)))], axis=1)
    for kind in present(schedule):
        rows = np.flatnonzero((schedule == kind.number) & (pp > 1))
        steady = kind.steady_s(stages.columns(rows), pp[rows])
        if steady is None:
            continue
        mean_s, slowest = steady
        count, crossings = microbatches[rows], 2 * (pp[rows] - 1)
        seconds[0, rows], transfers[0, rows] = total_s[rows], crossings + 2 * (1 - 1 / slowest) * (count - 1)
        seconds[1, rows] = total_s[rows] - count * (stages.pace_s[rows] - mean_s)
        transfers[1, rows] = crossings + crossings / pp[rows] * (count - 1)
    return seconds, transfers


def exposed_p2p_count(schedule: Floats, pp: Floats, vpp: Floats, microbatches: Floats, *, overlap: bool) -> Floats:
    """Return the p2p transfers that a step waits for, with equal stages and transfers much shorter than a pass.

    ``schedule``, ``pp``, ``vpp`` and ``microbatches`` have the shape of the result. ``overlap``: transfers run during
    passes.
    """
    transfers = by_schedule(schedule, lambda kind: kind.exposed_p2p(pp, vpp, microbatches, overlap=overlap))
    return np.where(pp > 1, transfers, 0.0)


def exposed_p2p_s(time: PipelineTime, key: NDArray[np.intp], p2p_s: Floats) -> tuple[Floats, Floats]:
    """Return the exposed seconds of transfers of ``p2p_s`` each, and the part beyond passes; shape N.

    ``key``: pipelines of the N rows. The second value is the time by which sends exceed all passes and the transfers in
    the critical path.
    """
    # exposed = crossings p + max(sends p - step - crossings p, 0) - spared min(excess, p), with p the seconds of one
    # transfer. Where paths through the schedule are known, the longest one with its transfers replaces the crossings.
    crossed_s = time.exposed_p2p[key] * p2p_s
    if time.paths is not None:
        known = np.asarray(time.paths[1].any(axis=0))
        some = np.flatnonzero(known[key])
        columns, longest_s = key[some], time.total_s[key[some]]
        for path_s, transfers in zip(*time.paths, strict=True):
            np.maximum(longest_s, path_s.take(columns) + transfers.take(columns) * p2p_s[some], out=longest_s)
        crossed_s[some] = longest_s - time.total_s[columns]
    idle_s = np.maximum(time.sends[key] * p2p_s - time.total_s[key] - crossed_s, 0.0)
    crossed_s += idle_s
    if time.spare_s is not None and time.spared is not None:
        crossed_s -= time.spared[key] * sum(np.minimum(spare_s[key], p2p_s) for spare_s in time.spare_s)
    return crossed_s, idle_s


def _bubbles_s(stages: StageTimes, schedule: Floats, pp: Floats, vpp: Floats, microbatches: Floats) -> Floats:
    """Return the seconds that the slowest stage of each run waits if a step ends with it, [R, S]."""
    kinds = present(schedule)
    if len(kinds) == 1:
        return kinds[0].bubble_s(stages, pp, vpp, microbatches)
    bubbles = np.empty_like(stages.forward_s)
    for kind in kinds:
        rows = np.flatnonzero(schedule == kind.number)
        bubbles[:, rows] = kind.bubble_s(stages.columns(rows), pp[rows], vpp[rows], microbatches[rows])
    return bubbles


def _spared(
    stages: StageTimes, schedule: Floats, pp: Floats, microbatches: Floats
) -> tuple[tuple[Floats, Floats], Floats]:
    """Return ``spare_s`` and ``spared`` of S pipelines."""
    forward_s, backward_s, counts = np.zeros_like(pp), np.zeros_like(pp), np.zeros(pp.shape, dtype=bool)
    for kind in present(schedule):
        rows = schedule == kind.number
        forward, backward, at = kind.spare_s(stages, pp)
        forward_s, backward_s = np.where(rows, forward, forward_s), np.where(rows, backward, backward_s)
        counts |= rows & at
    return (forward_s, backward_s), np.where(counts, microbatches - 1, 0.0)
