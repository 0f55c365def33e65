"""Traffic of replicas that comes with every microbatch: gradients (ZeRO 2) and parameters (ZeRO 3) that are sharded.

What a framework can hide of a reduction hides behind the pass that makes the gradients and behind no other: the rest of
it, which nothing hides, waits for it and holds up the device. Likewise a pass waits for the gather of its parameters,
which hides behind the pass before. Held to the event engine, which cuts both in buckets.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.pipeline import StageTimes, total_over_stages
from forerun.simulator.score_table import Floats
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.strategies import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """What one microbatch runs on the slowest stage of S pipelines: forward, the pass that needs parameters again, and
    the one that makes gradients of weights (the same unless ``apart``). ``share`` of all parameters each has to do
    with; ``turns``: passes of the other stages, of ``others_s`` forward and backward in the mean, in which a pipeline
    fills and drains; ``sent``: those of them in which the next stage waits for the reduction too, because results are
    sent behind it."""

    forward_s: Floats
    again_s: Floats
    making_s: Floats
    apart: NDArray[np.bool_]
    share: Floats
    others_s: tuple[Floats, Floats]
    turns: Floats
    sent: Floats

    def columns(self, some: NDArray[np.intp]) -> "Passes":
        """Return the passes of some pipelines, with repetition."""
        return Passes(
            forward_s=self.forward_s[some],
            again_s=self.again_s[some],
            making_s=self.making_s[some],
            apart=self.apart[some],
            share=self.share[some],
            others_s=(self.others_s[0][some], self.others_s[1][some]),
            turns=self.turns[some],
            sent=self.sent[some],
        )


def slowest_passes(
    stages: StageTimes,
    slowest: NDArray[np.intp],
    schedule: Floats,
    pp: Floats,
    vpp: Floats,
    *,
    overlap: bool,
) -> Passes:
    """Return the passes of S pipelines, number ``slowest`` of their stages being the slowest; ``overlap``: of transfers
    between them."""
    decides = slowest, np.arange(len(slowest))
    forward_s, backward_s, weight_s = (
        values[decides] for values in (stages.forward_s, stages.backward_s, stages.weight_s)
    )
    apart = (schedule == Schedule.ZB_H1) | (schedule == Schedule.ZB_V)
    looped = schedule == Schedule.INTERLEAVED
    turns = np.where(schedule <= Schedule.GPIPE, (pp - 1) / np.where(looped, vpp, 1.0), 0.0)
    others = np.maximum(pp - 1, 1.0)
    mean_s = [
        (total_over_stages(stages.multiplicity, values) - own) / others
        for values, own in ((stages.forward_s, forward_s), (stages.backward_s, backward_s))
    ]
    return Passes(
        forward_s=forward_s,
        again_s=np.where(apart, backward_s - weight_s, backward_s),
        making_s=np.where(apart, weight_s, backward_s),
        apart=apart,
        share=np.where(schedule == Schedule.DUALPIPE, 0.5, 1.0),
        others_s=(mean_s[0], mean_s[1]),
        turns=turns,
        sent=turns * (not overlap),
    )


def sharded_traffic_s(
    profile: FrameworkProfile,
    passes: Passes,
    microbatches: Floats,
    reduce_s: Floats,
    gather_s: Floats,
    parameters: NDArray[np.bool_],
    room: float,
) -> tuple[Floats, Floats]:
    """Return the seconds of a step that stand alone, and those that hide; shape N each.

    ``reduce_s`` and ``gather_s``: of all gradients and parameters of the stage once; ``parameters``: whether these are
    sharded too and gathered before every pass that needs them; ``room``: seconds of traffic that run beside one of
    computation.
    """
    reduce_s, gather_s = reduce_s * passes.share, gather_s * passes.share * parameters
    early_s = profile.overlap_parameters * gather_s
    before_s, again_s = (np.minimum(early_s, each * room) for each in (passes.forward_s, passes.again_s))
    room_s = passes.making_s * room - np.where(passes.apart, 0.0, again_s)
    behind_s = np.minimum(profile.overlap_gradients * reduce_s, room_s)
    alone_s = microbatches * (reduce_s - behind_s + 2 * gather_s - before_s - again_s)
    # The others hide as much in their own passes as those have room for, while the pipeline fills and drains.
    before, again = (np.minimum(early_s, each * room) for each in passes.others_s)
    late_s = np.minimum(profile.overlap_gradients * reduce_s, passes.others_s[1] * room - again)
    alone_s += passes.turns * (2 * gather_s - before - again) + passes.sent * (reduce_s - late_s)
    return alone_s, microbatches * (before_s + again_s + behind_s)
