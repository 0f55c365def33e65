"""From a legal tree to the costs of its step: what the event graph of flat strategies is compiled from, too."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.simulator.events.step.costs import StageCost, StepCosts, chunk_costs, one_port
from forerun.simulator.events.step.traffic import gathers_near
from forerun.simulator.events.trees.borders import inner_borders, stage_hops
from forerun.simulator.events.trees.host import check_host_memory, host_rate, with_host_chunks, with_host_replicas
from forerun.simulator.events.trees.parts import (
    Blocks,
    all_replicas,
    blocks_of,
    homes_of,
    moving_of,
    on_stages,
    parameters_of,
    passes_of,
    present_on,
    replica_blocks,
    replicas_of,
    with_modules,
)
from forerun.simulator.memory.peak import TotalMemory, total_memory
from forerun.simulator.replicas.reduction import ReplicaCosts, gradient_buckets
from forerun.simulator.schedules import PipelineShape
from forerun.spaces.strategies import Context, Strategy
from forerun.spaces.trees import TreeStrategies


def tree_costs(context: Context, strategies: TreeStrategies) -> StepCosts:
    """Return the costs of one step under a tree.

    Raises:
        RequestError: a cost rule knows no such operator, link or precision.
    """
    context = with_modules(context, strategies)
    tree, first, profile = strategies.tree, strategies.first, context.framework
    blocks, homes = blocks_of(context, strategies), homes_of(first)
    rate = host_rate(context, strategies)
    whole = all_replicas(context, blocks, homes)
    replicas = with_host_replicas(context, strategies, homes, whole, rate)
    check_host_memory(context, strategies, homes, whole, replicas)
    stall = 0.0
    if profile.allocator_stall:
        memory = stage_memory_of(context, blocks, homes, replicas, tree.microbatches)
        stall = profile.allocator_stall if memory.pressed[int(np.argmax(memory.allocated_bytes))] else 0.0
    there, back = (np.array(column) for column in zip(*inner_borders(context, strategies), strict=True))
    chunks = chunk_costs(passes_of(context, blocks), there, back, stall)
    hops_s = stage_hops(context, strategies)
    alike = len(set(hops_s)) <= 1 and all(there == back for there, back in hops_s)
    return StepCosts(
        schedule=int(tree.order),
        shape=PipelineShape(pp=first.pp, vpp=first.vpp, microbatches=tree.microbatches),
        chunks=with_host_chunks(context, strategies, chunks) if rate else chunks,
        stages=_stages(context, replica_blocks(blocks), homes, replicas),
        hop_s=max((there for hop in hops_s for there in hop), default=0.0),
        hops_s=() if alike else hops_s,
        overlap_hops=profile.overlap_pipeline,
        one_port=any(one_port(context, strategy) for strategy in blocks),
        gathers_near=all(gathers_near(context, strategy) for strategy in blocks),
        tied_s=float(replicas.tied_s.max()),
        zero=max(strategy.zero for strategy in blocks),
        overlap_gradients=profile.overlap_gradients,
        overlap_parameters=profile.overlap_parameters,
        overlap_slowdown=context.overlap.computation,
        traffic_slowdown=context.overlap.communication,
        host_step_s=profile.host_step_s,
        host_microbatch_s=profile.host_microbatch_s,
        in_flight=tree.in_flight[: first.pp],
        host_bytes_per_s=rate,
    )


def stage_memory_of(
    context: Context, blocks: Blocks, homes: Sequence[tuple[int, ...]], replicas: ReplicaCosts, microbatches: int
) -> TotalMemory:
    """Return peak memory of every device-stage by the core's closed forms, shape of stages."""
    stages = np.arange(len(homes))
    return total_memory(context, moving_of(context, blocks, homes, microbatches), stages, replicas, stages)


def _stages(
    context: Context, blocks: Blocks, homes: Sequence[tuple[int, ...]], replicas: ReplicaCosts
) -> tuple[StageCost, ...]:
    """Return what device-stages do once: traffic of each stage of sharding apart, the rest together."""
    by_zero: dict[int, list[Strategy]] = {}
    for strategy in blocks:
        by_zero.setdefault(strategy.zero, []).append(strategy)
    traffic = {zero: _traffic(context, zero, same, blocks, homes) for zero, same in sorted(by_zero.items())}
    fixed = replicas.parameter_bytes + replicas.gradient_bytes + replicas.optimizer_bytes + replicas.buffer_bytes
    stages = []
    for stage in range(len(homes)):
        own = [kinds[stage] for kinds in traffic.values() if kinds[stage].parameters]
        first, *rest = (each.cost for each in own or [next(iter(traffic.values()))[stage]])
        stages.append(
            replace(
                first,
                optimizer_s=float(replicas.optimizer_s[stage]),
                fixed_bytes=float(fixed[0, stage]),
                also=tuple(rest),
            )
        )
    return tuple(stages)


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Traffic of one stage of sharding on one device-stage, and the parameters that cause it."""

    cost: StageCost
    parameters: float


def _traffic(
    context: Context, zero: int, same: Sequence[Strategy], blocks: Blocks, homes: Sequence[tuple[int, ...]]
) -> list[_Traffic]:
    """Return the traffic of all layers that are sharded alike, by device-stage."""
    reduce_s, gather_s = np.zeros(len(homes)), np.zeros(len(homes))
    present = present_on(blocks, homes)
    held = np.zeros(blocks[same[0]].shape[1])
    for strategy in same:
        costs = replicas_of(context, strategy, on_stages(blocks[strategy], homes), present[strategy])
        reduce_s, gather_s = reduce_s + costs.reduce_s, gather_s + costs.gather_s
        each = parameters_of(context, strategy, blocks[strategy])
        held = held + (each.dense + each.expert)[0] * (blocks[strategy].sum(axis=0) > 0)
    ranks = np.asarray(float(max(strategy.dp * strategy.cp for strategy in same)))
    found = []
    for stage, chunks in enumerate(homes):
        total = float(held[list(chunks)].sum())
        cost = StageCost(
            reduce_s=float(reduce_s[stage]),
            gather_s=float(gather_s[stage]),
            buckets=int(gradient_buckets(context, total, ranks)),
            share={chunk: float(held[chunk]) / total if total else 0.0 for chunk in chunks},
            zero=zero,
        )
        found.append(_Traffic(cost, total))
    return found
