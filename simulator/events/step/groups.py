"""Costs of a step whose pipeline stages stand on groups of nodes that differ.

Every stage costs what it costs on its own group. A transfer from one group to the next leaves over the outermost level
of both and goes at the pace of the slower one; replicas of a stage stay within its group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.simulator.core.score import score
from forerun.simulator.events.step.costs import StepCosts
from forerun.simulator.events.step.result import EventResult
from forerun.simulator.events.step.staged_costs import costs_of
from forerun.simulator.pipeline.p2p import HopEnd, hop_parts_s
from forerun.simulator.score_table import TIME_PARTS, ScoreTable
from forerun.spaces.clusters import stage_groups
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Placement, Strategy, chunks_of_stage, table_of


def group_costs(context: Context, strategy: Strategy) -> StepCosts:
    """Return the costs of one step on a cluster with groups, under a strategy that must be legal.

    Raises:
        RequestError: the groups do not hold the stages, a group lacks the precision, or the strategy has neighbouring
            stages on one node or halves that differ in tp.
    """
    if strategy.placement != Placement.TP_CP_EP_DP_PP or strategy.second_tp is not None:
        raise RequestError(
            f"stages of {strategy} do not stand on devices of their own in a row, as groups of nodes need; drop the "
            "placement or the second tp"
        )
    homes = stage_groups(context.cluster, strategy.pp, strategy.dp * strategy.tp * strategy.cp)
    contexts = context.on_groups
    costs = [costs_of(one, strategy) for one in contexts]
    stage_of = [0] * len(costs[0].chunks)
    for stage in range(strategy.pp):
        for chunk in chunks_of_stage(strategy.pp, strategy.vpp, strategy.schedule, stage):
            stage_of[chunk] = stage
    on = [homes[stage] for stage in stage_of]
    hops_s = tuple(_hops_s(contexts, costs, strategy, on[chunk], on[chunk + 1], chunk) for chunk in range(len(on) - 1))
    return replace(
        costs[0],
        chunks=tuple(costs[group].chunks[chunk] for chunk, group in enumerate(on)),
        stages=tuple(costs[group].stages[stage] for stage, group in enumerate(homes)),
        hop_s=max((max(pair) for pair in hops_s), default=0.0),
        hops_s=hops_s,
        one_port=any(cost.one_port for cost in costs),
        gathers_near=all(cost.gathers_near for cost in costs),
        tied_s=max(costs[homes[0]].tied_s, costs[homes[-1]].tied_s),
    )


def _hops_s(
    contexts: Sequence[Context], costs: list[StepCosts], strategy: Strategy, here: int, there: int, chunk: int
) -> tuple[float, float]:
    """Return the seconds from a virtual stage to the next, and back."""
    if here == there:
        return costs[here].hop_from(chunk, back=False), costs[here].hop_from(chunk + 1, back=True)
    slowest = max(_network_hop_s(contexts[group], strategy) for group in (here, there))
    return slowest, slowest


def _network_hop_s(context: Context, strategy: Strategy) -> float:
    """Return the seconds of a transfer over the outermost level of one group."""
    levels = context.cluster.levels
    tp, dp, mbs, sp, cp = (
        np.array([float(value)]) for value in (strategy.tp, strategy.dp, strategy.mbs, strategy.sp, strategy.cp)
    )
    end = HopEnd(tp=tp, dp=dp, mbs=mbs, sp=sp)
    stride = np.array([float(levels[-2].size if len(levels) > 1 else 1)])
    sent, gathered = hop_parts_s(context, end, end, cp, stride)
    return float(sent[0] + gathered[0]) + context.framework.pipeline_hop_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRoom:
    """Memory of one stage on its group: its peak and the limit of its device, in bytes."""

    group: int
    peak_bytes: float
    limit_bytes: float


def stage_rooms(context: Context, strategy: Strategy, result: EventResult) -> tuple[StageRoom, ...]:
    """Return the memory of every stage: its live tensors, and what context, communicators and fragmentation add."""
    homes = stage_groups(context.cluster, strategy.pp, strategy.dp * strategy.tp * strategy.cp)
    lost = context.framework.fragmentation
    cores = {group: _core(context, strategy, group) for group in set(homes)}
    limits = [own.memory_limit_bytes for own in context.on_groups]
    rooms = []
    for stage, group in enumerate(homes):
        core = cores[group]
        live, known = result.stages[stage].peak_bytes, float(core.allocated_bytes[0])
        peak = live + float(core.peak_memory_bytes[0]) - known + lost * (live - known)
        rooms.append(StageRoom(group=group, peak_bytes=peak, limit_bytes=limits[group]))
    return tuple(rooms)


def group_scores(context: Context, strategy: Strategy, result: EventResult) -> tuple[int, ScoreTable]:
    """Return the group of the stage with the least memory left, and the scores of the strategy with that stage's."""
    rooms = stage_rooms(context, strategy, result)
    tightest = max(range(len(rooms)), key=lambda stage: (rooms[stage].peak_bytes / rooms[stage].limit_bytes, -stage))
    room = rooms[tightest]
    core = _core(context, strategy, room.group)
    live = np.array([result.stages[tightest].peak_bytes])
    more = live - core.allocated_bytes
    memory = dict(core.memory_bytes)
    memory["activations"] = memory["activations"] + more
    memory["reserve"] = memory["reserve"] + context.framework.fragmentation * more
    return room.group, replace(
        core,
        step_time_s=np.array([result.step_time_s]),
        time_s={part: np.array([result.time_s[part]]) for part in TIME_PARTS},
        peak_memory_bytes=np.array([room.peak_bytes]),
        allocated_bytes=live,
        memory_bytes=memory,
        peak_stage=np.array([tightest]),
        fits=np.array([all(one.peak_bytes <= one.limit_bytes for one in rooms)]),
    )


def _core(context: Context, strategy: Strategy, group: int) -> ScoreTable:
    return score(context.on_groups[group], table_of([strategy]))
