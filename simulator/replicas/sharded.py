"""Replica traffic of every microbatch: sharded gradients (ZeRO 2) and parameters (ZeRO 3).

A reduction overlaps only the pass that computes its gradients; the rest of it blocks the device. Likewise a pass waits
for the gather of its parameters, which overlaps the preceding pass. Tests compare this with the event engine, which
divides both into buckets.

Each virtual stage of an interleaved device overlaps its own traffic (``looped_traffic_s``). The first and the last
virtual stage of a pipeline also have a token table, whose traffic has no pass of its own to overlap.

Shapes: S pipelines; N candidates, each with one of the pipelines (``key``).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.replicas.buffers import stays_whole
from forerun.simulator.replicas.hiding import hidden_s, hiding_s
from forerun.simulator.score_table import Floats
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.schedules.catalogue import rounds_of, streams_of, with_trait
from forerun.spaces.schedules.stage_times import StageTimes, total_over_stages


@dataclass(frozen=True, slots=True, kw_only=True)
class HidingPasses:
    """Passes that can hide traffic on the slowest stage of S pipelines, shape S each.

    Times are seconds of traffic hidden by a pass over all parameters of the stage.
    """

    forward: Floats
    """Forward pass of one microbatch."""
    input_backward: Floats
    """Backward pass that gathers parameters a second time (entire, or the input gradient if weight gradients wait)."""
    weight_backward: Floats
    """Backward pass that computes weight gradients."""
    others_forward: Floats
    """Mean forward pass of the other stages, which exposes filling and draining."""
    others_backward: Floats
    """Mean backward pass of the other stages."""
    one_backward: Floats
    """1.0 where input and weight gradients are one pass, else 0.0."""
    count: Floats
    """Microbatches of a step, each with all parameters."""
    gathers: "Gathers"
    """Gathers of all parameters in a step."""
    reduced: Floats
    """``count`` and, where transfers block, the passes of filling and draining that wait for reductions."""

    def often(self, key: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return ``count`` and ``reduced`` of pipelines ``key``, read once where transfers overlap (they are equal)."""
        count = self.count[key]
        return count, count if self.reduced is self.count else self.reduced[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathers:
    """Number of gathers of all parameters that passes of a step wait for, on S pipelines, shape S each."""

    forward: Floats
    """Forward passes of the slowest stage."""
    backward: Floats
    """Its backward passes."""
    others_forward: Floats
    """Forward passes that fill the pipeline."""
    others_backward: Floats
    """Backward passes that drain it."""


def gathers_of(whole: NDArray[np.bool_], schedule: Floats, count: Floats, fill: Floats) -> Gathers:
    """Return the gathers of a step.

    ``count`` and ``fill`` [S]: passes per direction, and passes that fill the pipeline. Where parameters stay ``whole``
    [S] after a backward pass, only the first pass of a virtual stage and passes after its forward passes gather:
    ``count + 1`` times under any schedule. In 1F1B these are the backward passes, in GPipe all forward passes and the
    first backward pass.
    """
    together = whole & with_trait(schedule, lambda kind: kind.forwards_first)
    turns = whole & ~together
    return Gathers(
        forward=np.where(turns, 1.0, count),
        backward=np.where(together, 1.0, count),
        others_forward=fill,
        others_backward=np.where(turns, 0.0, fill),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops:
    """Work of S pipelines by virtual stage, shape S each; passes are of one microbatch, in seconds of traffic."""

    forward: Floats
    """Forward pass of a virtual stage of the first device."""
    backward: Floats
    """Backward pass, likewise."""
    last_forward: Floats
    """Forward pass of the last virtual stage of all, on the slowest device."""
    last_backward: Floats
    """Backward pass, likewise."""
    rounds: Floats
    """Virtual stages of a device."""
    group: Floats
    """Microbatches in a round through them."""
    count: Floats
    """Microbatches of a step."""


def looped_passes(
    stages: StageTimes, passes: HidingPasses, rounds: Floats, group: Floats, hidden_per_s: float
) -> Loops:
    """Return the passes of virtual stages.

    ``rounds`` [S]: virtual stages of a device; ``group`` [S]: microbatches of a round through them; ``passes`` and
    ``hidden_per_s``: see ``slowest_passes``.
    """
    forward, backward = stages.forward_s[0] * (hidden_per_s / rounds), stages.backward_s[0] * (hidden_per_s / rounds)
    return Loops(
        forward=forward,
        backward=backward,
        last_forward=np.maximum(passes.forward - (rounds - 1) * forward, 0.0),
        last_backward=np.maximum(passes.weight_backward - (rounds - 1) * backward, 0.0),
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
    hidden_per_s: float,
    whole: NDArray[np.bool_],
) -> HidingPasses:
    """Return the passes of S pipelines whose slowest stage is number ``slowest``.

    ``schedule``, ``pp``, ``vpp`` and ``microbatches`` have shape S. ``overlap``: p2p transfers run during passes.
    ``hidden_per_s``: seconds of traffic hidden by one second of passes. ``whole`` [S]: see ``stays_whole``.

    A pass of DualPipe runs one of a device's two stages, so it has half of its parameters.
    """
    decides = slowest, np.arange(len(slowest))
    share = 1.0 / streams_of(schedule)
    forward_s, backward_s, weight_s = (
        values[decides] * (hidden_per_s / share) for values in (stages.forward_s, stages.backward_s, stages.weight_s)
    )
    split = with_trait(schedule, lambda kind: kind.splits_backward)
    fill = np.where(_backward_in_line(schedule), (pp - 1) / rounds_of(schedule, vpp), 0.0)
    count = microbatches * share
    others_forward, others_backward = (
        (total_over_stages(stages.multiplicity, values) - values[decides]) * (hidden_per_s / np.maximum(pp - 1, 1.0))
        for values in (stages.forward_s, stages.backward_s)
    )
    return HidingPasses(
        forward=forward_s,
        input_backward=np.where(split, backward_s - weight_s, backward_s),
        weight_backward=np.where(split, weight_s, backward_s),
        others_forward=others_forward,
        others_backward=others_backward,
        one_backward=np.where(split, 0.0, 1.0),
        count=count,
        gathers=gathers_of(whole, schedule, count, fill),
        reduced=count if overlap else count + fill,
    )


def before_gradients_s(stages: StageTimes, schedule: Floats, pace_s: Floats) -> Floats:
    """Return the seconds of the last microbatch before the first stage's gradients start to be complete; shape S.

    ``pace_s`` [S]: the slowest stage's passes of one microbatch. The rest of the microbatch overlaps the reduction:
    backward passes of the first stage are last, after a wait for the slowest stage. Under ZB-H1 weight gradients end
    every stage, without a wait.
    """
    return np.asarray(
        np.where(with_trait(schedule, lambda kind: kind.weights_last), pace_s - stages.weight_s[0], stages.forward_s[0])
    )


def crossed_ranks(schedule: Floats, pp: Floats) -> Floats:
    """Return the number of ranks that reduce gradients during the last microbatch's backward passes; shape S.

    Separate weight-gradient passes run after these backward passes.
    """
    return np.where(_backward_in_line(schedule) & (pp > 1), pp, 0.0)


def _backward_in_line(schedule: Floats) -> NDArray[np.bool_]:
    """Mark the pipelines [S] of one stream whose backward passes include the weight gradients."""
    return with_trait(schedule, lambda kind: not kind.splits_backward and kind.streams == 1)


def gradient_pass_s(stages: StageTimes, schedule: Floats) -> Floats:
    """Return the seconds of the first stage's pass that completes gradients; shape S."""
    return np.asarray(
        np.where(with_trait(schedule, lambda kind: kind.weights_last), stages.weight_s[0], stages.backward_s[0])
    )


def sharded_gradients_s(
    profile: FrameworkProfile, passes: HidingPasses, key: NDArray[np.intp], reduce_s: Floats, buckets: Floats
) -> tuple[Floats, Floats]:
    """Return the exposed and hidden seconds of a step's reductions, [N].

    ``reduce_s``: one reduction of all gradients in ``buckets``.
    """
    # A reduction of R seconds per microbatch starts with the pass that computes its gradients: of the share o that may
    # overlap, the pass hides h (``hidden_s``), and R - h is exposed. Where results are sent after reductions, passes
    # of other stages that fill and drain the pipeline ("reduced" in number) also have it exposed: the same with the
    # mean pass of these stages.
    reduce_may_hide_s = profile.overlap_gradients * reduce_s
    reduce_hides_s = hidden_s(reduce_may_hide_s, passes.weight_backward[key], buckets)
    count, reduced = passes.often(key)
    filling_s = hidden_s(reduce_may_hide_s, passes.others_backward[key], buckets)
    beside_s = count * reduce_hides_s + (reduced - count) * filling_s
    return count * (reduce_s - reduce_hides_s) + (reduced - count) * (reduce_s - filling_s), beside_s


def sharded_parameters_s(
    profile: FrameworkProfile,
    passes: HidingPasses,
    key: NDArray[np.intp],
    reduce_s: Floats,
    gather_s: Floats,
    buckets: Floats,
) -> tuple[Floats, Floats]:
    """Return the same for reductions and for gathers of all parameters of the stage before a pass."""
    # Per microbatch parameters are gathered before each pass, G seconds, and gradients reduced once, R. With the shares
    # o_p, o_g that may overlap, min(o_p G, preceding forward pass) hides the gather for the forward pass, a = min(o_p
    # G, preceding pass) the gather for the backward pass, and min(o_g R, pass - a) the reduction: the rest of the
    # gradient pass, or all of it if weight gradients are a separate pass (``one_backward`` is 0). Exposed are R + 2 G
    # less all three. Where parameters stay gathered between passes, fewer passes gather. Gathers are sent before
    # reductions: a bucket of the next pass delays the last bucket of a reduction, after which nothing hides it.
    gather_may_hide_s, reduce_may_hide_s = profile.overlap_parameters * gather_s, profile.overlap_gradients * reduce_s
    often = passes.gathers
    forward_hides_s, filling_hides_s, draining_hides_s = (
        np.minimum(gather_may_hide_s, each[key])
        for each in (passes.forward, passes.others_forward, passes.others_backward)
    )
    # The first bucket overlaps the preceding forward pass.
    backward_s = hiding_s(passes.input_backward[key], buckets) + passes.forward[key] / buckets
    backward_hides_s = np.minimum(gather_may_hide_s, np.minimum(backward_s, passes.input_backward[key]))
    left_s = passes.weight_backward[key] - passes.one_backward[key] * backward_hides_s
    reduce_hides_s = hidden_s(reduce_may_hide_s, left_s, buckets)
    reduce_hides_s -= np.where(reduce_s > 0, forward_hides_s / buckets, 0.0)
    count, reduced = passes.often(key)
    # Passes that fill and drain the pipeline belong to other stages, and hide traffic up to their length.
    others_reduce_hides_s = hidden_s(reduce_may_hide_s, passes.others_backward[key] - draining_hides_s, buckets)
    alone_s = count * (reduce_s - reduce_hides_s) + (reduced - count) * (reduce_s - others_reduce_hides_s)
    beside_s = count * reduce_hides_s + (reduced - count) * others_reduce_hides_s
    for times, hides_s in (
        (often.forward[key], forward_hides_s),
        (often.backward[key], backward_hides_s),
        (often.others_forward[key], filling_hides_s),
        (often.others_backward[key], draining_hides_s),
    ):
        alone_s += times * (gather_s - hides_s)
        beside_s += times * hides_s
    return alone_s, beside_s


def looped_traffic_s(
    profile: FrameworkProfile,
    loops: Loops,
    key: NDArray[np.intp],
    table: Floats,
    reduce_s: Floats,
    gather_s: Floats | None,
    buckets: Floats,
    outer_buckets: Floats,
) -> tuple[Floats, Floats]:
    """Return the same for virtual stages one by one.

    ``gather_s``: None where parameters are not sharded; ``table``: the token table's share of a device's parameters;
    ``buckets`` and ``outer_buckets``: of a virtual stage without and with the table.

    The slowest device has the head, and its table in one virtual stage. The embedding's table slows the first virtual
    stage of all, on another device: this stage sets the pace of the first round of forward passes while the pipeline
    fills, and of the last round of backward passes while it drains.
    """
    # v virtual stages of a device share its traffic X = R (+ 2 G): (1 - t) / v of it each, where t is the token table's
    # share, which the last one (head) and the first one of all (embedding) have in addition. Each hides traffic up to
    # its own passes (h without a table), so over m microbatches m ((v - 1) h + h_last) is hidden, and the rest of m X
    # exposed. There are two further terms. Filling: the first microbatches of a group of p wait for the traffic of
    # passes without a predecessor, (p - 1) times. The embedding's device is another one, slower by its table: t X less
    # the part that it hides itself, for p microbatches. Where parameters stay gathered after backward passes, X = R +
    # G: except for the first forward pass of a virtual stage and passes that fill the pipeline, only backward passes
    # gather.
    overlap, whole = profile.overlap_pipeline, bool(stays_whole(profile, np.asarray(2)))  # they are of pipelines
    rounds, group, count = loops.rounds[key], loops.group[key], loops.count[key]
    inner = (1 - table) / rounds
    reduce_may_hide_s, backward = profile.overlap_gradients * reduce_s, loops.backward[key]
    traffic_s, gathers_hide_s = reduce_s, np.zeros_like(reduce_s)
    gather_may_hide_s, forward = np.zeros_like(reduce_s), loops.forward[key]
    if gather_s is not None:
        gather_may_hide_s = profile.overlap_parameters * gather_s
        traffic_s = reduce_s + (2 - whole) * gather_s
        filled_first_s = np.minimum(inner * gather_may_hide_s, forward)
        # Gathers are sent before reductions: one bucket delays the last bucket of a reduction.
        delaying_s = np.where(reduce_s > 0, filled_first_s / buckets, 0.0)
        gathers_hide_s = (1 - whole) * (filled_first_s - delaying_s)

    # Gathered parameters last until the next forward pass of their virtual stage. While passes of a device alternate
    # between two virtual stages, which v - 1 of v do, a group of forward passes gathers for all but the first of them,
    # and a group of backward passes for the first alone; otherwise only backward passes gather.
    before_forward = whole * (1 - 1 / rounds) * (1 - 1 / group)

    def passes_hide_s(part: Floats, forward_s: Floats, backward_s: Floats, segments: Floats) -> Floats:
        """Return the traffic of a part of the parameters, without ``gathers_hide_s``, that passes hide."""
        # A backward pass hides the gather before it, and with its remaining time the reduction.
        may_hide_s = part * gather_may_hide_s
        backward_hides_s = (1 - before_forward) * np.minimum(may_hide_s, backward_s)
        reductions_s = hidden_s(part * reduce_may_hide_s, backward_s - backward_hides_s, segments)
        return backward_hides_s + reductions_s + before_forward * np.minimum(may_hide_s, forward_s)

    reduce_hides_s = gathers_hide_s + passes_hide_s(inner, forward, backward, buckets)
    outer = inner + table
    last_s = passes_hide_s(outer, loops.last_forward[key], loops.last_backward[key], outer_buckets)
    first_s = passes_hide_s(outer, forward, backward, outer_buckets)
    filling_s: Floats | float = 0.0
    filled_s: Floats | float = 0.0
    if not overlap:
        filling_s, filled_s = inner * traffic_s - reduce_hides_s, reduce_hides_s
    if gather_s is not None and not whole:
        last_s += np.minimum(outer * gather_may_hide_s, loops.last_forward[key])
        first_s += np.minimum(outer * gather_may_hide_s, forward)
        if overlap:
            filled_s = gathers_hide_s + np.minimum(inner * gather_may_hide_s, backward)
            filling_s = 2 * inner * gather_s - filled_s
    elif gather_s is not None:
        # Each virtual stage's first forward pass gathers in addition, and so do passes that fill the pipeline.
        last_first_s = np.minimum(outer * gather_may_hide_s, loops.last_forward[key])
        filled_s, filling_s = filled_first_s, inner * gather_s - filled_first_s
    beside_s = count * ((rounds - 1) * reduce_hides_s + last_s)
    alone_s = (
        count * traffic_s - beside_s + (group - 1) * filling_s + group * (table * traffic_s - first_s + reduce_hides_s)
    )
    beside_s += (group - 1) * filled_s + group * (first_s - reduce_hides_s)
    if gather_s is not None and whole:
        once_hides_s = (rounds - 1) * filled_first_s + last_first_s
        alone_s, beside_s = alone_s + gather_s - once_hides_s, beside_s + once_hides_s
    return alone_s, beside_s
