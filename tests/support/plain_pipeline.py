"""Bubble and hops of one pipeline: the schedule of the plain reference."""

import math

from plain_stage import PlainStage
from plain_zero_bubble import run_ends, zb_h1_end_s

from forerun.simulator.costs import (
    collective_time_s,
    point_to_point_time_s,
)
from forerun.spaces.strategies import Context, Placement, Schedule, Strategy


def bubble_s_of(strategy: Strategy, stages: list[PlainStage], slowest: PlainStage, microbatches: float) -> float:
    """Seconds for which ``slowest`` waits in a step if it is the stage that decides."""
    pp, m, schedule = strategy.pp, microbatches, strategy.schedule
    f, b, w = slowest.forward_s, slowest.backward_s, slowest.weight_s
    i = b - w  # input gradients
    paces = [stage.pace_s for stage in stages]
    others = sum(paces) - max(paces)
    match schedule:
        case Schedule.ONE_F_ONE_B:
            # Of equal stages that which waits longest; its neighbours feed and drain it.
            waits = []
            for number, stage in enumerate(stages):
                if stage.forward_s == f and stage.backward_s == b:
                    behind, flight = sum(paces[number + 1 :]), min(pp - 1 - number, m - 1)
                    fill, drain = max(0.0, behind - flight * f), max(0.0, behind - flight * b)
                    wait = fill + drain if m > pp - number else max(fill, drain)
                    waits.append(sum(paces[:number]) + wait)
            return max(waits)
        case Schedule.INTERLEAVED:
            return others / strategy.vpp
        case Schedule.GPIPE:
            slow_f, slow_b = (max(getattr(stage, name) for stage in stages) for name in ("forward_s", "backward_s"))
            return others + (m - 1) * (slow_f + slow_b - f - b)
        case Schedule.ZB_H1:
            ends = run_ends([(stage.layers, stage.embedding, stage.head) for stage in stages])
            alike = [number for number in ends if stages[number].forward_s == f and stages[number].backward_s == b]
            return max((zb_h1_end_s(stages, number, m) for number in alike), default=0.0) - m * (f + b)
        case Schedule.ZB_V:
            return 0.0
        case Schedule.DUALPIPE:
            turns = max(pp / 2 - 1, 0.0)
            inputs = [stage.backward_s - stage.weight_s for stage in stages]
            mean_f, mean_i = sum(stage.forward_s for stage in stages) / pp, sum(inputs) / pp
            mean_w = sum(stage.weight_s for stage in stages) / pp
            alike_s = m * (mean_f + mean_i + mean_w) + turns * (mean_f + 2 * mean_i - mean_w)
            alike_s -= max(paces) - slowest.pace_s
            between = range(1, pp - 1) if pp > 2 else range(1)
            inner = sum(stages[s].forward_s + 2 * inputs[s] for s in between) / len(between)
            waits = turns * max(0.0, max(2 * mean_i, inner) - i - w)
            return max(alike_s - m * slowest.pace_s, waits)
    return others


def pipeline_parts(context: Context, strategy: Strategy, slowest: PlainStage, microbatches: float) -> dict[str, float]:
    """Parts of the pipelined time; "pipeline" is the number of hops between stages on the critical path."""
    hops = _hops(context, strategy, microbatches) if strategy.pp > 1 else 0.0
    names = ("compute", "recompute", "tensor", "context", "expert")
    parts = {part: microbatches * slowest.parts_s.get(part, 0.0) for part in names}
    return parts | {"pipeline": hops, "host": microbatches * slowest.gap_s}


def _hops(context: Context, strategy: Strategy, m: float) -> float:
    """Transfers that a step of a pipeline of equal stages waits for, as the event engine finds them."""
    pp, vpp, schedule, overlap = strategy.pp, strategy.vpp, strategy.schedule, context.framework.overlap_pipeline
    match schedule:
        case Schedule.INTERLEAVED:
            crossings = 2.0 * (pp * vpp - 1)
            return crossings if overlap else max(crossings, (2 * vpp - 1) * m + 2 * pp - 3)
        case Schedule.GPIPE:
            return 2.0 * (pp - 1) + (0 if overlap else 2 * (m - 1))
        case Schedule.ZB_V:
            if overlap:
                return 5.0 * pp - 7 if m > pp else 4.0 * (pp - 1)
            return max(2 * m + 2 if pp == 2 else 4 * m + pp - 3, 4.0 * (pp - 1))
        case Schedule.DUALPIPE if overlap:
            between = 0
        case Schedule.ZB_H1 if overlap:
            between = min(2 * (pp + m - 3), 4 * (pp - 1))
        case Schedule.ONE_F_ONE_B if overlap:
            between = 2 * (pp - 1) * m / pp + 2 * (pp - 2)
        case _:
            between = m + 1 if pp == 2 else 2 * m + 2 * pp - 5
    return max(between, 2.0 * (pp - 1))


def spared_s(strategy: Strategy, stages: list[PlainStage], m: float, each_s: float) -> float:
    """Seconds of blocking transfers that are not waited for: an end of the pipeline that is slower than all other
    stages sends in one direction only."""
    forward, backward = [stage.forward_s for stage in stages], [stage.backward_s for stage in stages]
    paces = [stage.pace_s for stage in stages]
    if strategy.schedule == Schedule.GPIPE and strategy.pp > 1:
        slower = [forward[-1] - max(forward[:-1]), backward[0] - max(backward[1:])]
    elif strategy.schedule == Schedule.ONE_F_ONE_B and strategy.pp > 2:
        slower = [max(paces[-1] - max(paces[:-1]), paces[0] - max(paces[1:]))]
    else:
        slower = []
    return (m - 1) * sum(min(max(excess_s, 0.0), each_s) for excess_s in slower)


def p2p_s(context: Context, strategy: Strategy) -> float:
    """Seconds of one transfer between stages."""
    if strategy.pp == 1:
        return 0.0
    tp, width = strategy.tp, 4.0 if context.workload.precision in ("fp32", "tf32") else 2.0
    size = strategy.mbs * context.workload.seq_len / strategy.cp * context.model.hidden * width
    stride = tp * strategy.cp * (1 if strategy.placement == Placement.TP_CP_EP_PP_DP else strategy.dp)
    scattered = strategy.sp or context.framework.scatters_p2p
    part = size / tp if scattered else size
    seconds = float(point_to_point_time_s(context.cluster, part, stride))
    node = context.cluster.levels[0].size
    if stride < node < stride * strategy.pp:  # some stages are neighbours on a node, others are not
        beyond_s = max(
            float(point_to_point_time_s(context.cluster, part * stride / node, node)),
            float(point_to_point_time_s(context.cluster, part, node, lone=True)),
        )
        borders = math.ceil(stride * strategy.pp / node) - 1
        share = borders / (strategy.pp - 1)
        if not context.framework.overlap_pipeline:
            share = max(share, 0.5)
        seconds += share * max(beyond_s - seconds, 0.0)
    if not strategy.sp and scattered:
        seconds += float(collective_time_s(context.cluster, "all_gather", size, tp, 1))
    return seconds + context.framework.p2p_fixed_s
