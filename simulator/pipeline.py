"""Seconds of the pipelined part of a step: all microbatches through all stages, in closed form.

With t the forward and backward time of a stage on one microbatch, m microbatches and stages that may differ:

- 1F1B: the first microbatch fills and drains every stage, the others pass at the pace of the slowest one,
  ``sum t + (m - 1) max t`` (for equal stages ``(m + pp - 1) t``, arXiv 2104.04473, section 2.2).
- GPipe: the same for forwards and backwards apart (arXiv 1811.06965).
- Interleaved: filling and draining take ``1/vpp`` of a stage each (arXiv 2104.04473, section 2.2.2).
- ZB-H1: weight gradients fill the drain, bubble ``(pp - 1)(f + b - w)`` with b the input gradient (arXiv 2401.10241).
- ZB-V: no bubble when f, b and w are equal; otherwise half of what the longest of them leaves open on each of
  ``pp - 1`` hops (arXiv 2405.15362, section 4; an upper bound for its adaptive form).
- DualPipe: bubble ``(pp/2 - 1)(f&b + b - 3w)`` with b the whole backward pass (arXiv 2412.19437, table 2).
"""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.score_table import Floats
from forerun.spaces.strategies import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Per representative stage and strategy, [R, S]: forward, backward, weight-gradient part; how many such stages."""

    forward_s: Floats
    backward_s: Floats
    weight_s: Floats
    multiplicity: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTime:
    """Shape S each: ``total_s`` without hops between stages, ``busy_s`` of the slowest stage and which it is, ``hops``
    that stand in the critical path."""

    total_s: Floats
    busy_s: Floats
    slowest: np.ndarray[tuple[int], np.dtype[np.intp]]
    hops: Floats


def pipeline_time(
    stages: StageTimes, schedule: Floats, pp: Floats, vpp: Floats, microbatches: Floats, *, overlap: bool
) -> PipelineTime:
    """Return the pipelined part of a step for S strategies; ``overlap``: steady-state sends run under computation."""
    both = stages.forward_s + stages.backward_s
    real = stages.multiplicity > 0
    slowest = np.argmax(np.where(real, both, -1.0), axis=0)
    columns = np.arange(both.shape[1])
    pace = both[slowest, columns]
    around = (both * stages.multiplicity).sum(axis=0) - pace
    forward, backward = stages.forward_s[slowest, columns], stages.backward_s[slowest, columns]
    weight = stages.weight_s[slowest, columns]
    bubble = np.where(schedule == Schedule.INTERLEAVED, around / vpp, around)
    if np.any(schedule >= Schedule.GPIPE):
        bubble = _other_bubbles(stages, schedule, pp, microbatches, bubble, forward, backward, weight)
    busy = microbatches * pace
    fill = 2 * (pp - 1)
    steady = 0.0 if overlap else 2 * (microbatches - 1) * vpp * (pp > 1)
    return PipelineTime(total_s=busy + bubble, busy_s=busy, slowest=slowest, hops=fill + steady)


def _other_bubbles(
    stages: StageTimes,
    schedule: Floats,
    pp: Floats,
    microbatches: Floats,
    bubble: Floats,
    forward: Floats,
    backward: Floats,
    weight: Floats,
) -> Floats:
    """Return ``bubble`` with the rows of the less usual schedules replaced."""
    pace = forward + backward
    fastest = stages.forward_s.max(axis=0) + stages.backward_s.max(axis=0)
    gpipe = bubble + (microbatches - 1) * (fastest - pace)
    inputs = backward - weight
    h1 = (pp - 1) * np.maximum(forward + inputs - weight, 0.0)
    longest = np.maximum(np.maximum(forward, inputs), weight)
    vee = (pp - 1) * (3 * longest - forward - inputs - weight) / 2
    dual = np.maximum(pp / 2 - 1, 0.0) * np.maximum(pace + backward - 3 * weight, 0.0)
    for kind, value in (
        (Schedule.GPIPE, gpipe),
        (Schedule.ZB_H1, h1),
        (Schedule.ZB_V, vee),
        (Schedule.DUALPIPE, dual),
    ):
        bubble = np.where(schedule == kind, value, bubble)
    return bubble
