"""Seconds of the pipelined part of a step: all microbatches through all stages, in closed form.

With t the forward and backward time of a stage on one microbatch, m microbatches and stages that may differ:

- 1F1B: ``(m + pp - 1) t`` for equal stages (arXiv 2104.04473, section 2.2). Else stage s ends a step after
  ``m t_s + sum_(i<s) t_i + max(0, A - n f_s) + max(0, A - n b_s)``, A the time of the stages behind it: the ``n``
  forward passes that it keeps in flight run while its first microbatch fills them, as many backward passes while its
  last one drains them (one wait where all ``m`` are in flight at once). Held to the event engine by a test.
- GPipe: the same for forwards and backwards apart (arXiv 1811.06965).
- Interleaved: filling and draining take ``1/vpp`` of a stage each (arXiv 2104.04473, section 2.2.2); virtual stages of
  unequal layers wait for each other in every lap (``lap_paths``).
- ZB-H1: weight gradients fill the drain, bubble ``(pp - 1)(f + b - w)`` with b the input gradient (arXiv 2401.10241),
  and no less than ``(pp - 1) max(f, b)``; where m < pp only m - 1 of them are there to fill it.
- ZB-V: half of what the longest of f, b and w leaves open on each of ``pp - 1`` hops (arXiv 2405.15362, section 4; an
  upper bound for its adaptive form), and no less than the staggered start that a barrier behind the step leaves; of
  ``2 pp - 1`` microbatches, every missing one uncovers a way down and up, unless a slower stage is busy meanwhile.
  Within 8 % of the event engine.
- DualPipe: bubble ``(pp/2 - 1)(f&b + b - 3w)`` with b the whole backward pass (arXiv 2412.19437, table 2).

Where ZB-H1 and DualPipe are stated for equal stages, the stage that would finish last by its own f, b and w decides.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.score_table import Floats
from forerun.spaces.strategies import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Per run of equal stages (in pipeline order) and strategy, [R, S]: forward, backward, weight-gradient part; how
    many such stages (0 in padding), number of the first of them."""

    forward_s: Floats
    backward_s: Floats
    weight_s: Floats
    multiplicity: Floats
    first: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTime:
    """Shape S each: ``total_s`` without hops between stages, ``busy_s`` of the slowest stage and which it is, ``hops``
    that stand in the critical path, ``sends`` that occupy the busiest device's link under computation; virtual stages
    that pass one after the other (``laps``, 1 unless interleaved) and microbatches in each (``lap``)."""

    total_s: Floats
    busy_s: Floats
    slowest: np.ndarray[tuple[int], np.dtype[np.intp]]
    hops: Floats
    sends: Floats
    laps: Floats
    lap: Floats


def pipeline_time(
    stages: StageTimes,
    schedule: Floats,
    pp: Floats,
    vpp: Floats,
    microbatches: Floats,
    *,
    overlap: bool,
    least_s: Floats | float = 0.0,
) -> PipelineTime:
    """Return the pipelined part of a step for S strategies.

    ``overlap``: steady-state sends run under computation; ``least_s``: seconds that some path through the schedule
    takes (``lap_paths``), where the forms above do not see it.
    """
    both = stages.forward_s + stages.backward_s
    total = _total(stages.multiplicity, both)
    longest = np.where(stages.multiplicity > 0, both, 0.0).max(axis=0)
    bubbles = (total - longest) / np.where(schedule == Schedule.INTERLEAVED, vpp, 1.0)
    bubbles = np.where(schedule == Schedule.ONE_F_ONE_B, _one_f_one_b(stages, pp, microbatches), bubbles)
    if np.any(schedule >= Schedule.GPIPE):
        bubbles = _other_bubbles(stages, schedule, pp, microbatches, bubbles)
    finish = np.where(stages.multiplicity > 0, microbatches * both + bubbles, -1.0)
    # Stages that tie up to rounding (all that wait for their host do) take turns by their number, not by chance.
    slowest = np.argmax(finish >= finish.max(axis=0) * (1 - 1e-12), axis=0)
    columns = np.arange(both.shape[1])
    pace, bubble = both[slowest, columns], bubbles[slowest, columns]
    busy = microbatches * pace
    total = np.maximum(busy + bubble, least_s)
    return PipelineTime(
        total_s=total,
        busy_s=busy,
        slowest=slowest,
        hops=hops_in_the_way(schedule, pp, vpp, microbatches, overlap=overlap),
        sends=np.where((pp > 1) & overlap, np.where((pp == 2) & (vpp == 1), 1.0, 2.0) * vpp * microbatches, 0.0),
        laps=np.where(schedule == Schedule.INTERLEAVED, vpp, 1.0),
        lap=np.minimum(pp, microbatches),
    )


def hops_in_the_way(schedule: Floats, pp: Floats, vpp: Floats, microbatches: Floats, *, overlap: bool) -> Floats:
    """Return how many transfers between stages a step waits for, on equal stages and hops short against a pass.

    Filling and draining cross every border once each way, of ``vpp`` laps when interleaved. In the steady state of 1F1B
    a stage waits for what its neighbour makes of what it has just sent, so that overlap hides next to nothing;
    blocking transfers stand between the passes of every schedule, two exchanges per microbatch and virtual stage (with
    two stages what goes and what comes back pass at once). Found with the event engine, held to it by a test.
    """
    interleaved, vee = schedule == Schedule.INTERLEAVED, schedule == Schedule.ZB_V
    crossings = 2 * (np.where(interleaved, pp * vpp, pp) - 1)
    if overlap:
        hops = np.where(schedule == Schedule.ONE_F_ONE_B, 2 * (pp - 1) * microbatches / pp + 2 * (pp - 2), crossings)
        hops = np.where(schedule == Schedule.ZB_H1, 4 * (pp - 1), hops)
        hops = np.where(vee, 5 * pp - 7, hops)
    else:
        hops = np.where(pp == 2, microbatches + 1, 2 * microbatches + 2 * pp - 5)
        hops = np.where(schedule == Schedule.GPIPE, 2 * (microbatches + pp - 2), hops)
        hops = np.where(interleaved, (2 * vpp - 1) * microbatches + 2 * pp - 3, hops)
        hops = np.where(vee, np.where(pp == 2, 2 * microbatches + 2, 4 * microbatches + pp - 3), hops)
    return np.where(pp > 1, np.maximum(crossings, hops), 0.0)


def hops_s(time: PipelineTime, key: NDArray[np.intp], hop_s: Floats) -> Floats:
    """Return the seconds for which the steps of pipelines ``key`` wait for transfers of ``hop_s`` each: those in the
    critical path, and no less than sending takes longer than all passes; shape N."""
    return np.maximum(time.hops[key] * hop_s, time.sends[key] * hop_s - time.total_s[key])


def _total(multiplicity: Floats, values: Floats) -> Floats:
    """Sum over stages, row by row: numpy would add up a single column in another order than many."""
    total: Floats = np.zeros_like(values[0])
    for count, value in zip(multiplicity, values, strict=True):
        total = total + count * value
    return total


def _one_f_one_b(stages: StageTimes, pp: Floats, microbatches: Floats) -> Floats:
    """Return for how long the stage of each run that ends last waits, [R, S]: the first or the last of the run."""
    forward, backward = stages.forward_s, stages.backward_s
    both, count = forward + backward, stages.multiplicity
    before, after = np.zeros_like(both), np.zeros_like(both)
    for row in range(1, len(both)):
        before[row] = before[row - 1] + count[row - 1] * both[row - 1]
    for row in reversed(range(len(both) - 1)):
        after[row] = after[row + 1] + count[row + 1] * both[row + 1]
    within = np.maximum(count - 1, 0.0)
    waits = []
    for skipped in (np.zeros_like(within), within):
        behind = after + (within - skipped) * both
        deeper = pp - 1 - stages.first - skipped
        flight = np.minimum(deeper, microbatches - 1)
        fill, drain = np.maximum(behind - flight * forward, 0.0), np.maximum(behind - flight * backward, 0.0)
        # Where no forward pass follows the first backward one, the two waits are one.
        wait = np.where(microbatches > deeper + 1, fill + drain, np.maximum(fill, drain))
        waits.append(before + skipped * both + wait)
    return np.maximum(*waits)


def _other_bubbles(stages: StageTimes, schedule: Floats, pp: Floats, microbatches: Floats, bubbles: Floats) -> Floats:
    """Return ``bubbles`` [R, S] with the columns of the less usual schedules replaced."""
    forward, backward, weight = stages.forward_s, stages.backward_s, stages.weight_s
    pace, inputs = forward + backward, backward - weight
    fastest = forward.max(axis=0) + backward.max(axis=0)
    gpipe = bubbles + (microbatches - 1) * (fastest - pace)
    # No more weight gradients fill the drain than there are.
    covered = np.minimum(pp - 1, microbatches - 1) * weight
    h1 = np.maximum((pp - 1) * (forward + inputs) - covered, (pp - 1) * np.maximum(forward, inputs))
    longest = np.maximum(np.maximum(forward, inputs), weight)
    missing = np.maximum(2 * pp - 1 - microbatches, 0.0)
    count = stages.multiplicity
    steady = (pp - 1) / 2 * np.maximum(3 * longest - pace, forward)
    alike = microbatches * (_total(count, pace) / pp - pace) + missing * _total(count, forward / 4 + inputs / 2) / pp
    vee = steady + np.maximum(alike, 0.0)
    dual = np.maximum(pp / 2 - 1, 0.0) * np.maximum(pace + backward - 3 * weight, 0.0)
    for kind, value in (
        (Schedule.GPIPE, gpipe),
        (Schedule.ZB_H1, h1),
        (Schedule.ZB_V, vee),
        (Schedule.DUALPIPE, dual),
    ):
        bubbles = np.where(schedule == kind, value, bubbles)
    return bubbles
