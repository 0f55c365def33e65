"""Costs of an assignment's step, the only connection between the cost rules and the event level.

Every number comes from the functions of the vectorised core, so the two fidelities can differ in the order of tasks but
never in their durations.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forerun.simulator.assignment.activations import rank_activations
from forerun.simulator.assignment.borders import changes_inside, p2p_times
from forerun.simulator.assignment.costs import ChunkCost, StageCost, StepCosts
from forerun.simulator.assignment.host import check_host_memory, host_copies, host_rate, rank_replicas
from forerun.simulator.assignment.memory import stage_memory
from forerun.simulator.assignment.passes import ChunkPasses, chunk_passes
from forerun.simulator.assignment.replicas import SettingsReplicas, all_replicas, replicas_by_settings
from forerun.simulator.assignment.value import Assignment, Blocks
from forerun.simulator.costs.slowest import wait_share
from forerun.simulator.layer.times import BLOCK_PARTS
from forerun.simulator.memory.peak import fullest_bytes
from forerun.simulator.replicas.buffers import stays_whole
from forerun.simulator.replicas.reduction import ReplicaCosts, reduces_each
from forerun.simulator.replicas.slices import gathers_near, line_rate_cluster, share_port
from forerun.simulator.score_table import Floats
from forerun.spaces.schedules.catalogue import schedule_of
from forerun.spaces.strategies import Context, Placement, Strategy


def step_costs(assignment: Assignment) -> StepCosts:
    """Return the costs of one step.

    Raises
    ------
    RequestError
        A cost rule does not know an operator, link or precision, or the tensors exceed the host's memory.
    """
    transfers_s = p2p_times(assignment)
    if len(assignment.contexts) > 1:
        return _on_groups(assignment, transfers_s)
    context, profile, blocks = assignment.context, assignment.context.framework, assignment.blocks()
    each = replicas_by_settings(assignment, blocks)
    whole = all_replicas(context, each)
    replicas = rank_replicas(assignment, whole)
    check_host_memory(assignment, whole, replicas)
    stall = _stall(assignment, replicas) if profile.allocator_stall else 0.0
    # One number for all borders lets the event level cache one task length.
    by_round = profile.gradient_sync == "round" and assignment.rounds > 1
    alike = len(set(transfers_s)) <= 1 and all(there == back for there, back in transfers_s)
    chunks = _chunks(assignment, chunk_passes(context, blocks), stall)
    return StepCosts(
        schedule=int(assignment.schedule),
        shape=assignment.shape,
        chunks=chunks,
        stages=_stages(assignment, blocks, each, replicas),
        # One length represents all transfers where they are equal; otherwise the longest.
        p2p_s=max((seconds for both in transfers_s for seconds in both), default=0.0),
        each_p2p_s=() if alike else transfers_s,
        overlap_p2p=profile.overlap_pipeline,
        one_port=any(_one_port(context, settings) for settings in blocks),
        gathers_near=all(gathers_near(context, settings) for settings in blocks),
        tied_s=float(replicas.tied_s.max()),
        zero=max(settings.zero for settings in blocks),
        reduced_each_from=2 if by_round or all(_reduces_each(context, settings) for settings in blocks) else 4,
        reduced_every=assignment.shape.pp if by_round else 1,
        stays_whole=bool(stays_whole(profile, np.asarray(assignment.shape.pp))),
        overlap_gradients=profile.overlap_gradients,
        overlap_parameters=profile.overlap_parameters,
        overlap_slowdown=context.overlap.computation,
        traffic_slowdown=context.overlap.communication,
        host_step_s=profile.host_step_s + _wait_s(assignment, chunks),
        host_microbatch_s=profile.host_microbatch_s,
        in_flight=assignment.in_flight,
        host_bytes_per_s=host_rate(assignment),
    )


def _on_groups(assignment: Assignment, transfers_s: tuple[tuple[float, float], ...]) -> StepCosts:
    """Return the costs of a step whose ranks each have the costs of their own group of devices."""
    # Each group of devices is costed as if it had the whole pipeline; each rank takes the costs of its group.
    costs = [step_costs(assignment.on_group(group)) for group in range(len(assignment.contexts))]
    own = assignment.group_of_rank
    return replace(
        costs[0],
        chunks=tuple(costs[own[rank]].chunks[chunk] for chunk, rank in enumerate(assignment.rank_of_chunk)),
        stages=tuple(costs[group].stages[rank] for rank, group in enumerate(own)),
        p2p_s=max((seconds for both in transfers_s for seconds in both), default=0.0),
        each_p2p_s=transfers_s,
        one_port=any(cost.one_port for cost in costs),
        gathers_near=all(cost.gathers_near for cost in costs),
        tied_s=max(costs[own[0]].tied_s, costs[own[-1]].tied_s),
        host_step_s=max(cost.host_step_s for cost in costs),
    )


def _wait_s(assignment: Assignment, chunks: Sequence[ChunkCost]) -> float:
    """Return a step's wait for the slowest replica, a share of the busiest rank's computation."""
    ranks = [[chunks[chunk] for chunk in own] for own in assignment.chunks_of_rank]
    busy_s = [sum(chunk.forward_s + chunk.backward_s for chunk in rank) for rank in ranks]
    busiest = next(rank for rank, busy in zip(ranks, busy_s, strict=True) if busy >= max(busy_s) * (1 - 1e-12))
    # DualPipe feeds half of the microbatches from each end, so a rank computes each of its two chunks for half.
    count = assignment.shape.microbatches / schedule_of(assignment.schedule).streams
    computed_s = count * sum(chunk.parts["compute"] + chunk.parts["recompute"] for chunk in busiest)
    return float(wait_share(max(settings.dp * settings.cp for settings in assignment.blocks()))) * computed_s


def reduction_latency_s(assignment: Assignment) -> list[float]:
    """Return the latency of one pass over the gradients of every rank, in seconds, shape P."""
    context = assignment.context
    blocks = assignment.blocks()
    fast = replace(context, cluster=line_rate_cluster(context, next(iter(blocks))))
    on_fast = replace(assignment, contexts=(fast,))
    # Time that remains on links of unbounded rate is latency: the event level shares only the rest among flows.
    reduce_s: list[float] = all_replicas(fast, replicas_by_settings(on_fast, blocks)).reduce_s.tolist()
    return reduce_s


def _stall(assignment: Assignment, replicas: ReplicaCosts) -> float:
    """Return the share of a step lost to allocator retries where idle buffers do not fit on the fullest rank."""
    memory = stage_memory(assignment, replicas)
    fullest = int(np.argmax(memory.allocated_bytes))
    return assignment.context.framework.allocator_stall if memory.pressed[fullest] else 0.0


def _chunks(assignment: Assignment, passes: ChunkPasses, stall: float) -> tuple[ChunkCost, ...]:
    """Return the costs of every virtual stage; ``stall``: share of all passes lost to allocator retries."""
    there, back = changes_inside(assignment)
    # Host and device work in parallel: a pass takes the longer of the two, and the difference is a gap.
    device_s = passes.forward_s + passes.backward_s + there + back
    forward_s = np.maximum(passes.forward_s + there, passes.host_forward_s)
    backward_s = np.maximum(passes.backward_s + back, passes.host_backward_s)
    weight_s = np.maximum(passes.weight_s, passes.host_forward_s)
    gap_s = forward_s + backward_s - device_s
    parts = {**passes.parts, "tensor": passes.parts["tensor"] + there + back}
    kept, parts_kept, fetched, layers = host_copies(assignment)
    return tuple(
        ChunkCost(
            forward_s=float(forward_s[chunk]) * (1 + stall),
            backward_s=float(backward_s[chunk]) * (1 + stall),
            weight_s=float(weight_s[chunk]) * (1 + stall),
            parts={
                **{part: float(parts[part][chunk]) for part in BLOCK_PARTS},
                "host": float(gap_s[chunk] + stall * (forward_s[chunk] + backward_s[chunk])),
            },
            kept_bytes=float(passes.kept_bytes[chunk]),
            logit_bytes=float(passes.logit_bytes[chunk]),
            working_bytes=float(passes.beside_loss_bytes[chunk]),
            host_bytes=float(kept[chunk]),
            host_parts=max(int(parts_kept[chunk]), 1),
            fetch_bytes=float(fetched[chunk]),
            fetches=max(int(layers[chunk]), 1),
        )
        for chunk in range(len(forward_s))
    )


def _stages(
    assignment: Assignment, blocks: Blocks, each: Sequence[SettingsReplicas], replicas: ReplicaCosts
) -> tuple[StageCost, ...]:
    """Return the work of ranks once per step: separate traffic per ZeRO stage, all other work together."""
    by_zero: dict[int, list[SettingsReplicas]] = {}
    for one in each:
        by_zero.setdefault(one.settings.zero, []).append(one)
    traffic = [_traffic(assignment, zero, same) for zero, same in sorted(by_zero.items())]
    # Passes allocate the moving part; the rest of the fullest moment is allocated all the time.
    ranks, activations = np.arange(assignment.shape.pp), rank_activations(assignment, blocks)
    fullest = fullest_bytes(activations, ranks, replicas, ranks)
    fixed = fullest - (activations.moving - activations.passing)
    stages = []
    for rank in range(assignment.shape.pp):
        own = [costs[rank] for costs in traffic if any(costs[rank].share.values())]
        # A rank without parameters still has a cost row, of zero seconds.
        first, *rest = own or [traffic[0][rank]]
        stages.append(
            replace(
                first,
                optimizer_s=float(replicas.optimizer_s[rank] + assignment.shape.microbatches * replicas.copy_s[rank]),
                fixed_bytes=float(fixed[0, rank]),
                also=tuple(rest),
            )
        )
    return tuple(stages)


def _traffic(assignment: Assignment, zero: int, same: Sequence[SettingsReplicas]) -> list[StageCost]:
    """Return the traffic of all layers with equal sharding, by rank."""
    pp = assignment.shape.pp
    reduce_s: Floats = sum((one.costs.reduce_s for one in same), np.zeros(pp))
    gather_s: Floats = sum((one.costs.gather_s for one in same), np.zeros(pp))
    held: Floats = sum((one.parameters for one in same), np.zeros(len(assignment.layers)))
    found = []
    for rank, chunks in enumerate(assignment.chunks_of_rank):
        total = float(held[list(chunks)].sum())
        found.append(
            StageCost(
                reduce_s=float(reduce_s[rank]),
                gather_s=float(gather_s[rank]),
                buckets=max(round(sum(float(one.costs.buckets[rank]) for one in same)), 1),
                share={chunk: float(held[chunk]) / total if total else 0.0 for chunk in chunks},
                zero=zero,
            )
        )
    return found


def _reduces_each(context: Context, strategy: Strategy) -> bool:
    zero, pp = np.asarray(strategy.zero), np.asarray(strategy.pp)
    return strategy.zero < 2 or bool(reduces_each(context.framework, zero, pp))


def _one_port(context: Context, strategy: Strategy) -> bool:
    degrees = {axis: np.asarray(float(getattr(strategy, axis))) for axis in ("tp", "cp", "dp", "pp")}
    near = np.asarray(strategy.placement == Placement.TP_CP_EP_PP_DP)
    return bool(share_port(context.cluster, **degrees, near=near))
