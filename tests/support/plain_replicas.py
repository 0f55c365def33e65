"""Gradient reduction, parameter gather, tied tables and optimizer of the plain reference."""

import math
import operator

from plain_device import recipe_word
from plain_memory import one_layout, parameter_widths, reduced_once
from plain_stage import PlainStage

from forerun.simulator.costs import (
    INPUT_BYTES,
    adam_time_s,
    collective_time_s,
    memory_bound_time_s,
)
from forerun.spaces.strategies import Context, Placement, Schedule, Strategy


def replica_parts(
    context: Context,
    strategy: Strategy,
    stages: list[PlainStage],
    slowest: PlainStage,
    pace: tuple[float, float],
    bubble_s: float,
    microbatches: float,
) -> dict[str, float]:
    """Seconds of gradient reduction, parameter gather, tied tables and optimizer that stand in the step."""
    profile, cluster, half = context.framework, context.cluster, context.workload.precision not in ("fp32", "tf32")
    replicas = strategy.dp * strategy.cp
    expert_replicas = replicas * strategy.tp / (strategy.ep * strategy.etp)
    apart = strategy.pp if strategy.placement == Placement.TP_CP_EP_PP_DP else 1
    tensors = max(stage.tensors for stage in stages)
    groups = [(max(stage.dense for stage in stages), replicas, strategy.tp * apart, tensors)]
    if context.moe:
        most = max(stage.expert for stage in stages)
        groups.append((most, expert_replicas, strategy.ep * strategy.etp * apart, 0))

    travels = parameter_widths(context)[1] / (2.0 if half else 4.0)
    outside = max(stage.outside for stage in stages)
    sets = replicas // strategy.shard if strategy.shard else 1  # copies of what is sharded

    def one_pass(collective: str, wire: float) -> float:
        total = 0.0
        for number, (parameters, members, stride, apiece) in enumerate(groups):
            if members > 1:
                bucket = max(profile.bucket_bytes, profile.bucket_rank_bytes * members)
                gradients = collective not in ("all_gather", "broadcast")
                if not gradients:
                    parameters = travels * parameters + (1 - travels) * (0.0 if number else outside)
                width = profile.bucket_width_bytes if gradients and profile.bucket_width_bytes else wire
                count = max(round(parameters * width / bucket), 1)
                if apiece and profile.gathers_tensors and not gradients:
                    count = apiece
                if profile.layer_units and strategy.zero >= 2:
                    count = max(round(context.model.layer_count / strategy.pp), 1)
                among = members if collective == "all_reduce" else members / sets
                if collective == "broadcast":
                    count = among
                steps = [(collective, 1.0, among, stride)]
                if collective == "reduce_scatter" and sets > 1:  # every slice is then added up over its copies
                    steps.append(("all_reduce", 1 / among, sets, stride * among))
                if not profile.tree_reduction:
                    steps = [
                        (part, *where)
                        for step, *where in steps
                        for part in (("reduce_scatter", "all_gather") if step == "all_reduce" else (step,))
                    ]
                for step, share, ranks, apart_by in steps:
                    size = share * parameters * wire / count
                    total += count * float(collective_time_s(cluster, step, size, ranks, apart_by))  # type: ignore[arg-type]
        return total

    scatters = strategy.zero and not profile.reduces_whole
    reduce_s = one_pass("reduce_scatter" if scatters else "all_reduce", profile.reduce_bytes if half else 4.0)
    spread = "broadcast" if profile.broadcasts_parameters else "all_gather"
    gather_s = one_pass(spread, 2.0 if half else 4.0) if strategy.zero else 0.0
    (pace_s, wait_s), first = pace, stages[0]
    # Passes take ``slow`` times as long beside traffic, and ``room`` seconds of that hide under one of theirs.
    slow = profile.overlap_slowdown * cluster.overlap.computation
    room = slow / cluster.overlap.communication
    whole_s = microbatches * pace_s + bubble_s
    rounds = strategy.vpp if strategy.schedule == Schedule.INTERLEAVED else 1
    group = min(strategy.pp, microbatches) / rounds

    def hidden_s(traffic_s: float, window_s: float, own_s: float, pass_s: float) -> tuple[float, float]:
        """What is through when it is needed, virtual stage after virtual stage, each a round apart; and what of it runs
        beside passes (``own_s`` of the window), after what fits into waits."""
        window_s = max(window_s, own_s)
        beside_s = room * own_s + window_s - own_s
        each_s = room * pass_s + wait_s
        ends = [(turn + 1) / rounds * traffic_s - beside_s / rounds - turn * group * each_s for turn in range(rounds)]
        found_s = traffic_s - max(0.0, *ends)
        return found_s, max(found_s - (window_s - own_s) / rounds - (rounds - 1) * group * wait_s, 0.0)

    lost = (1 - 1 / slow) * (slow / room)
    late_s, early_s = profile.overlap_gradients * reduce_s, profile.overlap_parameters * gather_s
    if strategy.schedule == Schedule.ZB_H1:
        making_s, own_s = first.weight_s + wait_s, first.weight_s
    else:
        making_s, own_s = pace_s - first.forward_s, first.backward_s
    covered, beside = hidden_s(late_s, making_s, own_s, first.backward_s)
    hidden, early = hidden_s(early_s, pace_s - first.backward_s, first.forward_s, first.forward_s)
    passes_s = microbatches * (first.forward_s + first.backward_s)
    hidden = min(hidden, whole_s + passes_s * (room - 1) - covered)
    early = min(hidden, early)
    data_s, once = 0.0, reduced_once(profile, strategy)
    if once:
        data_s = reduce_s - covered + lost * beside
        if rounds > 1 and strategy.zero < 2:
            # Once per virtual stage, the last microbatch crosses all ranks, each in a pass beside its own reduction.
            crossing_s = strategy.pp * min(lost * late_s, (slow - 1) * first.backward_s)
            queue_s = max(reduce_s - covered - reduce_s / rounds, 0.0)
            data_s += max(crossing_s - queue_s - lost * beside, 0.0)
        if profile.gradient_sync == "round" and strategy.zero >= 2 and rounds > 1:
            pipelined = min(strategy.pp, microbatches)
            turns = math.ceil(microbatches / pipelined) - 1
            under_s = min(late_s, room * pipelined * (first.forward_s + first.backward_s))
            data_s += turns * (reduce_s - under_s + lost * under_s)
    if strategy.zero == 3 or not once:
        every_s = _every_lap_s if strategy.schedule == Schedule.INTERLEAVED else _every_microbatch_s
        traffic = 0.0 if once else reduce_s, gather_s if strategy.zero == 3 else 0.0
        data_s += every_s(context, strategy, stages, slowest, traffic, microbatches, (room, lost))
    if strategy.zero < 3:
        data_s += gather_s - hidden + lost * early
    data_s += _tied_s(context, strategy, max(stage.tied for stage in stages))
    updated = [stage.dense + stage.expert for stage in stages]
    if strategy.zero:
        updated = [sets * (stage.dense / replicas + stage.expert / expert_replicas) for stage in stages]
    device, own = cluster.device, max(updated)
    adam = adam_time_s(device, own, gradient_bytes=4.0, master_weights=half, state_bytes=profile.optimizer_bytes)
    moved = 4.0 * own + profile.step_bytes * max(stage.dense + stage.expert for stage in stages)
    if profile.unit_parameters == "each" and strategy.zero >= 2:
        width = 2.0 if half else 4.0
        apiece = (strategy.zero - 1) * 2 * width + width + (profile.reduce_bytes if half else 4.0)
        moved += apiece * max(stage.dense + stage.expert for stage in stages)
    renewed = renewed_width(context) * max(stage.dense - stage.outside + stage.expert for stage in stages)
    passes = float(memory_bound_time_s(device, moved)) + float(memory_bound_time_s(device, renewed))
    return {"data": data_s, "optimizer": float(adam) + passes}


def renewed_width(context: Context) -> float:
    """Bytes moved per weight to make the eight-bit forms that are kept once per step."""
    profile, precision = context.framework, context.workload.precision
    alone = profile.eight_bit_parameters and precision not in ("fp4", "nvfp4")
    if precision not in ("fp8", "mxfp8", "fp4", "nvfp4") or not (profile.eight_bit_copies or alone):
        return 0.0
    recipe, one = recipe_word(context), one_layout(context)
    if profile.eight_bit_parameters and recipe != "mx":
        each = {"block": 1 + 4 / 128**2}.get(recipe, INPUT_BYTES[precision])
        return 0.0 if one else 2 * each
    cast = {"delayed": 4.0, "mx": 4.0, "block": 4.0625, "row": 8.0}.get(recipe, 6.0)
    return cast - (1.0 if one else 0.0)


def _every_microbatch_s(
    context: Context,
    strategy: Strategy,
    stages: list[PlainStage],
    slowest: PlainStage,
    traffic: tuple[float, float],
    microbatches: float,
    beside: tuple[float, float],
) -> float:
    """Seconds of sharded gradients and parameters: a reduction hides under the pass that makes the gradients, a gather
    before the pass that needs the parameters."""
    profile, (reduce_s, gather_s), (room, lost) = context.framework, traffic, beside
    split = strategy.schedule in (Schedule.ZB_H1, Schedule.ZB_V)
    if strategy.schedule == Schedule.DUALPIPE:
        reduce_s, gather_s = reduce_s / 2, gather_s / 2
    making_s = slowest.weight_s if split else slowest.backward_s
    again_s = slowest.backward_s - slowest.weight_s if split else slowest.backward_s

    def shown(forward_s: float, again_s: float, making_s: float) -> tuple[list[float], float]:
        """Seconds of a gather before either pass, and of a reduction, that nothing hides."""
        before = [min(profile.overlap_parameters * gather_s, room * pass_s) for pass_s in (forward_s, again_s)]
        behind = min(profile.overlap_gradients * reduce_s, room * making_s - (0.0 if split else before[1]))
        return [gather_s - hides for hides in before], reduce_s - behind

    # How often: before every pass; or once, and behind each forward pass of the same stage.
    often, filling = [microbatches, microbatches], [1, 1]
    if profile.gradient_sync == "pipeline" and strategy.pp > 1:
        gpipe = strategy.schedule == Schedule.GPIPE
        first = 2 if strategy.schedule == Schedule.DUALPIPE else 1  # its halves
        often, filling = ([microbatches, 1], [1, 1]) if gpipe else ([first, microbatches], [1, 0])
    gathers, reductions = shown(slowest.forward_s, again_s, making_s)
    alone = sum(map(operator.mul, often, gathers)) + microbatches * reductions
    hidden = sum(often) * gather_s + microbatches * reduce_s - alone
    if strategy.schedule in (Schedule.ONE_F_ONE_B, Schedule.GPIPE) and strategy.pp > 1:
        # What fills the pipeline are passes of the other stages, and hides no more than fits into these.
        forward, backward = (
            (sum(getattr(stage, name) for stage in stages) - getattr(slowest, name)) / (strategy.pp - 1)
            for name in ("forward_s", "backward_s")
        )
        gathers, reductions = shown(forward, backward, backward)
        shown_s = sum(map(operator.mul, filling, gathers)) + (0.0 if profile.overlap_pipeline else reductions)
        traffic_s = sum(filling) * gather_s + (0.0 if profile.overlap_pipeline else reduce_s)
        alone += (strategy.pp - 1) * shown_s
        hidden += (strategy.pp - 1) * (traffic_s - shown_s)
    return alone + lost * hidden


def _every_lap_s(
    context: Context,
    strategy: Strategy,
    stages: list[PlainStage],
    slowest: PlainStage,
    traffic: tuple[float, float],
    microbatches: float,
    beside: tuple[float, float],
) -> float:
    """The same where a device has several virtual stages: each hides its own traffic, and one has a token table."""
    profile, (reduce_s, gather_s), (room, lost) = context.framework, traffic, beside
    pp, vpp = strategy.pp, strategy.vpp
    table = stages[0].table / max(stage.dense + stage.expert for stage in stages)
    forward, backward = room * stages[0].forward_s / vpp, room * stages[0].backward_s / vpp
    head_forward = max(room * slowest.forward_s - (vpp - 1) * forward, 0.0)
    head_backward = max(room * slowest.backward_s - (vpp - 1) * backward, 0.0)

    def alone(share: float, forward_s: float, backward_s: float) -> tuple[float, float]:
        """Seconds of gathers and of reductions of one microbatch on one virtual stage that nothing hides."""
        early = profile.overlap_parameters * share * gather_s
        before = [0.0 if whole else min(early, forward_s), min(early, backward_s)]
        behind = min(profile.overlap_gradients * share * reduce_s, backward_s - before[1])
        return times * share * gather_s - sum(before), share * reduce_s - behind

    def before_first(share: float, forward_s: float) -> float:
        """Seconds of the gather before the first forward pass of a virtual stage that nothing hides."""
        return share * gather_s - min(profile.overlap_parameters * share * gather_s, forward_s)

    whole = profile.gradient_sync == "pipeline"  # behind a backward pass, until the next forward pass
    times = 1 if whole else 2
    inner = (1 - table) / vpp
    gathers, reductions = alone(inner, forward, backward)
    with_head = sum(alone(inner + table, head_forward, head_backward))
    with_embedding = sum(alone(inner + table, forward, backward))
    each = (vpp - 1) * (gathers + reductions) + with_head
    shown_s = gathers + (0.0 if profile.overlap_pipeline else reductions)
    first_lap = min(pp, microbatches) * (with_embedding - gathers - reductions)
    once = 0.0
    if whole and gather_s:
        shown_s = before_first(inner, forward)
        once = (vpp - 1) * shown_s + before_first(inner + table, head_forward)
    hidden = microbatches * (reduce_s + times * gather_s - each)
    hidden += (pp - 1) * (inner * (times * gather_s + (0.0 if profile.overlap_pipeline else reduce_s)) - shown_s)
    hidden += min(pp, microbatches) * table * (reduce_s + times * gather_s) - first_lap
    if whole and gather_s:
        hidden += gather_s - once
    return microbatches * each + (pp - 1) * shown_s + first_lap + once + lost * hidden


def _tied_s(context: Context, strategy: Strategy, tied: float) -> float:
    """Seconds to add up the gradients of the two copies of a tied token table."""
    if strategy.pp == 1 or tied == 0:
        return 0.0
    block = strategy.tp * strategy.cp * strategy.pp
    if strategy.placement != Placement.TP_CP_EP_PP_DP:
        block *= strategy.dp
    stride = max(block / 2, 1)
    half = context.workload.precision not in ("fp32", "tf32")
    wire = context.framework.reduce_bytes if half else 4.0
    return float(collective_time_s(context.cluster, "all_reduce", wire * tied, 2, stride))
