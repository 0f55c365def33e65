"""Costs of a step whose stages differ in what they recompute or in tp: for the event level, by the staged core."""

import numpy as np

from forerun.simulator.assignment.stage_costs import StagePasses, parameters_of, stage_passes
from forerun.simulator.core.staged import stage_hops_s
from forerun.simulator.events.step.costs import ChunkCost, StageCost, StepCosts, one_port, step_costs
from forerun.simulator.events.step.traffic import gathers_near
from forerun.simulator.layer.times import BLOCK_PARTS
from forerun.simulator.memory.peak import StageMemory, total_memory
from forerun.simulator.replicas.reduction import (
    REPLICA_DEGREES,
    ReplicaCosts,
    Replicas,
    gradient_buckets,
    replica_costs,
)
from forerun.simulator.schedules import PipelineShape
from forerun.simulator.stages.plan import in_flight
from forerun.simulator.stages.rows import StageRows, stage_rows
from forerun.spaces.strategies import Context, Schedule, Strategy, table_of


def costs_of(context: Context, strategy: Strategy) -> StepCosts:
    """Return the costs of one step under any strategy, which must be legal.

    Raises:
        RequestError: a cost rule knows no such operator, link or precision.
    """
    return step_costs(context, strategy) if strategy.stage_choices is None else staged_costs(context, strategy)


def staged_costs(context: Context, strategy: Strategy) -> StepCosts:
    """Return the costs of one step under a strategy without virtual stages, which must be legal.

    Raises:
        RequestError: a cost rule knows no such operator, link or precision.
    """
    profile, rows = context.framework, stage_rows(context, table_of([strategy]))
    passes, replicas = stage_passes(context, rows), _replicas(context, rows)
    stall = _stall(context, rows, passes, replicas) if profile.allocator_stall else 0.0
    hops_s = stage_hops_s(context, rows)[:, :, 0]
    return StepCosts(
        schedule=int(strategy.schedule),
        shape=PipelineShape(pp=strategy.pp, vpp=1, microbatches=int(rows.microbatches[0, 0])),
        chunks=tuple(_chunk(rows, passes, stage, stall) for stage in range(strategy.pp)),
        stages=_stages(context, rows, replicas),
        hop_s=float(hops_s.max(initial=0.0)),
        hops_s=tuple((float(there), float(back)) for there, back in hops_s.T),
        overlap_hops=profile.overlap_pipeline,
        one_port=one_port(context, strategy.half(False)) or one_port(context, strategy.half(True)),
        gathers_near=gathers_near(context, strategy),
        tied_s=float(replicas.tied_s.max()),
        zero=strategy.zero,
        overlap_gradients=profile.overlap_gradients,
        overlap_parameters=profile.overlap_parameters,
        overlap_slowdown=context.overlap.computation,
        traffic_slowdown=context.overlap.communication,
        host_step_s=profile.host_step_s,
        host_microbatch_s=profile.host_microbatch_s,
    )


def _replicas(context: Context, rows: StageRows) -> ReplicaCosts:
    """Return the once-per-step costs of every stage: one column each."""
    parameters = parameters_of(context, rows)
    own = type(parameters)(
        dense=parameters.dense.T.copy(),
        expert=parameters.expert.T.copy(),
        tied=parameters.tied.T.copy(),
        tensors=parameters.tensors.T.copy(),
    )
    degrees = {axis: getattr(rows, axis)[:, 0] for axis in REPLICA_DEGREES}
    return replica_costs(context, Replicas(parameters=own, **degrees))


def _chunk(rows: StageRows, passes: StagePasses, stage: int, stall: float) -> ChunkCost:
    """Return what one stage costs; ``stall``: share of all passes lost to the allocator."""
    forward_s, backward_s = float(passes.forward_s[stage, 0]), float(passes.backward_s[stage, 0])
    memory = passes.memory
    number, pp, count = (values[stage : stage + 1, 0] for values in (rows.number, rows.pp, rows.microbatches))
    flight = in_flight(rows.schedule[stage : stage + 1, 0], number, pp, np.ones(1), count)
    return ChunkCost(
        forward_s=forward_s * (1 + stall),
        backward_s=backward_s * (1 + stall),
        weight_s=float(passes.weight_s[stage, 0]) * (1 + stall),
        parts={
            **{part: float(passes.parts[part][stage, 0]) for part in BLOCK_PARTS},
            "host": float(passes.gap_s[stage, 0]) + stall * (forward_s + backward_s),
        },
        kept_bytes=float(memory.kept[stage, 0] / flight[0]),
        logit_bytes=float(memory.logits[stage, 0]) / (flight[0] if rows.schedule[0, 0] == Schedule.GPIPE else 1.0),
        working_bytes=float(memory.working[stage, 0]),
    )


def _stages(context: Context, rows: StageRows, costs: ReplicaCosts) -> tuple[StageCost, ...]:
    parameters = parameters_of(context, rows)
    held = (parameters.dense + parameters.expert)[:, 0]
    buckets = gradient_buckets(context, held, (rows.dp * rows.cp)[:, 0])
    fixed = costs.parameter_bytes + costs.gradient_bytes + costs.optimizer_bytes + costs.buffer_bytes
    return tuple(
        StageCost(
            reduce_s=float(costs.reduce_s[stage]),
            gather_s=float(costs.gather_s[stage]),
            optimizer_s=float(costs.optimizer_s[stage]),
            buckets=int(buckets[stage]),
            share={stage: 1.0},
            fixed_bytes=float(fixed[0, stage]),
        )
        for stage in range(len(held))
    )


def _stall(context: Context, rows: StageRows, passes: StagePasses, replicas: ReplicaCosts) -> float:
    """Return the share of a step that the allocator loses where its idle buffers find no room on the fullest stage."""
    stages = np.arange(len(rows.number))
    own = passes.memory
    moving = StageMemory(
        kept=own.kept.T, working=own.working.T, logits=own.logits.T, idle=own.idle.T, stage=own.stage.T
    )
    memory = total_memory(context, moving, stages, replicas, stages)
    fullest = int(np.argmax(memory.allocated_bytes))
    return context.framework.allocator_stall if memory.pressed[fullest] else 0.0
