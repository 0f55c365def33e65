"""Traffic of replicas that comes with every microbatch: gradients (ZeRO 2) and parameters (ZeRO 3) that are sharded.

What a framework can hide of a reduction hides behind the pass that makes the gradients and behind no other: the rest of
it, which nothing hides, waits for it and holds up the device. Likewise a pass waits for the gather of its parameters,
which hides behind the pass before. Held to the event engine, which cuts both in buckets.

Virtual stages of an interleaved device hide each its own (``looped_traffic_s``): the first and the last of a pipeline
have a token table besides, whose traffic finds no more to hide behind than that of the layers beside it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.pipeline.closed_forms import StageTimes, total_over_stages
from forerun.simulator.score_table import Floats
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.strategies import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class HidingPasses:
    """What hides traffic on the slowest stage of S pipelines, shape S each, in seconds of traffic of all parameters:
    the forward pass, the one that needs parameters again, and the one that makes gradients of weights, which is the
    same where ``one`` is 1 and not 0. ``count`` of microbatches with all parameters; with the passes in which a
    pipeline fills and drains: those that wait for gathers, and those that wait for reductions, because results are sent
    behind these. ``others_``: the mean passes of the stages besides, which these are."""

    forward: Floats
    again: Floats
    making: Floats
    others_forward: Floats
    others_backward: Floats
    one: Floats
    count: Floats
    gathered: Floats
    reduced: Floats

    def often(self, key: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return ``count`` and ``reduced`` of pipelines ``key``, taken once where transfers overlap: they are one."""
        count = self.count[key]
        return count, count if self.reduced is self.count else self.reduced[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops:
    """What S pipelines do virtual stage by virtual stage, shape S each: the passes of one microbatch on a virtual stage
    of the first device, and on the last of all where the slowest device has it (``last_``), in seconds of traffic;
    virtual stages of a device, microbatches in a round through them and in a step."""

    forward: Floats
    backward: Floats
    last_forward: Floats
    last_backward: Floats
    rounds: Floats
    group: Floats
    count: Floats


def looped_passes(stages: StageTimes, passes: HidingPasses, rounds: Floats, group: Floats, room: float) -> Loops:
    """Return the passes of virtual stages; ``passes`` and ``room`` as for ``slowest_passes``."""
    forward, backward = stages.forward_s[0] * (room / rounds), stages.backward_s[0] * (room / rounds)
    return Loops(
        forward=forward,
        backward=backward,
        last_forward=np.maximum(passes.forward - (rounds - 1) * forward, 0.0),
        last_backward=np.maximum(passes.making - (rounds - 1) * backward, 0.0),
        rounds=rounds,
        group=group,
        count=passes.count,
    )


def slowest_passes(
    stages: StageTimes,
    slowest: NDArray[np.intp],
    schedule: Floats,
    pp: Floats,
    vpp: Floats,
    microbatches: Floats,
    *,
    overlap: bool,
    room: float,
) -> HidingPasses:
    """Return the passes of S pipelines, number ``slowest`` of their stages being the slowest; ``overlap``: of transfers
    between them; ``room``: seconds of traffic that run beside one of computation.

    A pass of DualPipe has to do with one of a device's two stages, and so with half of its parameters.
    """
    decides = slowest, np.arange(len(slowest))
    share = np.where(schedule == Schedule.DUALPIPE, 0.5, 1.0)
    forward_s, backward_s, weight_s = (
        values[decides] * (room / share) for values in (stages.forward_s, stages.backward_s, stages.weight_s)
    )
    apart = (schedule == Schedule.ZB_H1) | (schedule == Schedule.ZB_V)
    rounds = np.where(schedule == Schedule.INTERLEAVED, vpp, 1.0)
    turns = np.where(schedule <= Schedule.GPIPE, (pp - 1) / rounds, 0.0)
    count = microbatches * share
    others_forward, others_backward = (
        (total_over_stages(stages.multiplicity, values) - values[decides]) * (room / np.maximum(pp - 1, 1.0))
        for values in (stages.forward_s, stages.backward_s)
    )
    return HidingPasses(
        forward=forward_s,
        again=np.where(apart, backward_s - weight_s, backward_s),
        making=np.where(apart, weight_s, backward_s),
        others_forward=others_forward,
        others_backward=others_backward,
        one=np.where(apart, 0.0, 1.0),
        count=count,
        gathered=count + turns,
        reduced=count if overlap else count + turns,
    )


def unmade_s(stages: StageTimes, schedule: Floats, pace_s: Floats) -> Floats:
    """Return for how much of ``pace_s``, the slowest stage's passes of its last microbatch, the first stage has not yet
    begun to complete gradients; shape S. What is left hides their reduction.

    Backward passes of the first stage come last of all, and it waits for the slowest stage meanwhile. The weight
    gradients of ZB-H1 stand at the end of every stage, without a wait.
    """
    return np.asarray(np.where(schedule == Schedule.ZB_H1, pace_s - stages.weight_s[0], stages.forward_s[0]))


def making_s(stages: StageTimes, schedule: Floats) -> Floats:
    """Return the seconds of the first stage's pass that completes gradients; shape S."""
    return np.asarray(np.where(schedule == Schedule.ZB_H1, stages.weight_s[0], stages.backward_s[0]))


def sharded_gradients_s(
    profile: FrameworkProfile, passes: HidingPasses, key: NDArray[np.intp], reduce_s: Floats
) -> tuple[Floats, Floats]:
    """Return the seconds of a step in which reductions stand alone, and those of them that hide; shape N each.

    ``reduce_s``: of all gradients of the stage once.
    """
    # Once per microbatch a reduction of R seconds begins with the pass that makes its gradients: the share o that may
    # overlap hides behind that pass, h = min(o R, pass), and R - h stands alone. Where results are sent behind
    # reductions it does so, too, behind the passes of other stages that fill and drain the pipeline ("reduced" of them
    # in all): the same with the mean pass of those.
    late_s = profile.overlap_gradients * reduce_s
    behind_s = np.minimum(late_s, passes.making[key])
    count, reduced = passes.often(key)
    filling_s = np.minimum(late_s, passes.others_backward[key])
    hidden_s = count * behind_s + (reduced - count) * filling_s
    return count * (reduce_s - behind_s) + (reduced - count) * (reduce_s - filling_s), hidden_s


def sharded_parameters_s(
    profile: FrameworkProfile, passes: HidingPasses, key: NDArray[np.intp], reduce_s: Floats, gather_s: Floats
) -> tuple[Floats, Floats]:
    """Return the same of reductions and gathers, these of all parameters of the stage once, before either pass."""
    # Per microbatch parameters are gathered twice, G seconds before each pass, and gradients reduced once, R. With the
    # shares o_p, o_g that may overlap: the gather for the forward pass hides behind min(o_p G, forward pass before it),
    # that for the backward pass behind a = min(o_p G, pass before it), and the reduction behind what this leaves of the
    # pass that makes gradients, min(o_g R, pass - a): all of it where weight gradients are a pass of their own (one is
    # 0). Alone stand R + 2 G less all three.
    early_s, late_s = profile.overlap_parameters * gather_s, profile.overlap_gradients * reduce_s
    again_s = np.minimum(early_s, passes.again[key])
    before_s = np.minimum(early_s, passes.forward[key]) + again_s
    behind_s = np.minimum(late_s, passes.making[key] - passes.one[key] * again_s)
    count, reduced = passes.often(key)
    # Passes that fill and drain the pipeline are those of the other stages, and hide what fits into them.
    others_again_s = np.minimum(early_s, passes.others_backward[key])
    others_before_s = np.minimum(early_s, passes.others_forward[key]) + others_again_s
    others_behind_s = np.minimum(late_s, passes.others_backward[key] - others_again_s)
    alone_s = count * (reduce_s - behind_s + 2 * gather_s - before_s)
    alone_s += (reduced - count) * (reduce_s - others_behind_s)
    alone_s += (passes.gathered[key] - count) * (2 * gather_s - others_before_s)
    hidden_s = count * (before_s + behind_s)
    hidden_s += (reduced - count) * others_behind_s + (passes.gathered[key] - count) * others_before_s
    return alone_s, hidden_s


def looped_traffic_s(
    profile: FrameworkProfile,
    loops: Loops,
    key: NDArray[np.intp],
    table: Floats,
    reduce_s: Floats,
    gather_s: Floats | None,
    *,
    overlap: bool,
) -> tuple[Floats, Floats]:
    """Return the same of virtual stages one by one. ``gather_s`` is None where parameters are not sharded, ``table``
    what a token table is of a device's parameters, ``overlap`` as for ``slowest_passes``.

    The slowest device has the head, and the head's table in one of its virtual stages. The embedding's makes the first
    virtual stage of all slower, another device's: the first round of forward passes goes by its pace while the pipeline
    fills, and the last one of backward passes while it drains.
    """
    # v virtual stages of a device share its traffic X = R (+ 2 G): (1 - t) / v of it each, t being the token table's
    # share, which the last one (head) and the first one of all (embedding) have besides. Each hides what fits into its
    # own passes (h, of the plain ones), so that over m microbatches m ((v - 1) h + h_last) hides and m X less that
    # stands alone. Two terms come on top. Filling: the first microbatches of a group of p wait for the traffic of
    # passes that nothing precedes, (p - 1) times. The embedding's device is another one, slower by its table: t X less
    # what that part hides itself, for p microbatches.
    rounds, group, count = loops.rounds[key], loops.group[key], loops.count[key]
    inner = (1 - table) / rounds
    late_s, backward = profile.overlap_gradients * reduce_s, loops.backward[key]
    # A backward pass has room for the gather before it, and for as much of the reduction as that leaves.
    traffic_s, room_s = reduce_s, late_s
    before_s: Floats | float = 0.0
    if gather_s is not None:
        early_s, forward = profile.overlap_parameters * gather_s, loops.forward[key]
        traffic_s, room_s = reduce_s + 2 * gather_s, early_s + late_s
        before_s = np.minimum(inner * early_s, forward)
    behind_s = before_s + np.minimum(inner * room_s, backward)
    outer = inner + table
    last_s, first_s = np.minimum(outer * room_s, loops.last_backward[key]), np.minimum(outer * room_s, backward)
    filling_s: Floats | float = 0.0
    filled_s: Floats | float = 0.0
    if not overlap:
        filling_s, filled_s = inner * traffic_s - behind_s, behind_s
    if gather_s is not None:
        last_s += np.minimum(outer * early_s, loops.last_forward[key])
        first_s += np.minimum(outer * early_s, forward)
        if overlap:
            filled_s = before_s + np.minimum(inner * early_s, backward)
            filling_s = 2 * inner * gather_s - filled_s
    hidden_s = count * ((rounds - 1) * behind_s + last_s)
    alone_s = count * traffic_s - hidden_s + (group - 1) * filling_s + group * (table * traffic_s - first_s + behind_s)
    hidden_s += (group - 1) * filled_s + group * (first_s - behind_s)
    return alone_s, hidden_s
