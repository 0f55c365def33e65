"""What the parts of one step cost, as plain numbers: the only bridge between the cost rules and the event level.

Every number comes from the functions that the vectorised core uses, so that the two fidelities can differ in when
things happen and never in how long they take.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.events.step.traffic import gathers_near, line_rate_cluster
from forerun.simulator.layer.kinds import kind_of_entry, layer_kinds
from forerun.simulator.layer.shard import Shard, shard_of
from forerun.simulator.layer.times import BLOCK_PARTS, block_times, host_passes_s
from forerun.simulator.memory.peak import stage_memory, total_memory
from forerun.simulator.pipeline.p2p import hop_time_s
from forerun.simulator.replicas.reduction import (
    REPLICA_DEGREES,
    ReplicaCosts,
    Replicas,
    gradient_buckets,
    replica_costs,
)
from forerun.simulator.schedules import PipelineShape
from forerun.simulator.score_table import Floats
from forerun.simulator.stages.parameters import StageParameters, stage_parameters
from forerun.simulator.stages.plan import StagePlans
from forerun.spaces.strategies import (
    Context,
    Placement,
    Schedule,
    Strategy,
    StrategyTable,
    chunks_of_stage,
    stage_layers,
    table_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCost:
    """One microbatch on one virtual stage. ``backward_s`` has both gradients and the wait for the host, ``weight_s`` is
    the part that may run apart. ``parts`` splits forward and backward together by kind. ``kept_bytes`` are held from
    forward to weight gradient, ``logit_bytes`` from forward to input gradient, ``working_bytes`` only while the
    latter runs.

    ``host_bytes`` of what is kept go to the host's memory behind the forward pass and come back before the backward
    one; ``fetch_bytes`` of parameters come from there before each of them, in ``fetches`` parts."""

    forward_s: float
    backward_s: float
    weight_s: float
    parts: Mapping[str, float]
    kept_bytes: float = 0.0
    logit_bytes: float = 0.0
    working_bytes: float = 0.0
    host_bytes: float = 0.0
    fetch_bytes: float = 0.0
    fetches: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """What a device-stage does once: a pass over all its gradients (``reduce_s``) and parameters (``gather_s``), in
    ``buckets``, ``share`` of it for each of its virtual stages; the optimizer; bytes that never move.

    ``zero``: the stage of sharding that decides when the traffic takes place (None: that of the step). ``also``:
    traffic of layers that are sharded otherwise."""

    reduce_s: float = 0.0
    gather_s: float = 0.0
    optimizer_s: float = 0.0
    buckets: int = 1
    share: Mapping[int, float]
    fixed_bytes: float = 0.0
    zero: int | None = None
    also: tuple["StageCost", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """Everything that one step of one pipeline is compiled from. ``chunks`` are the virtual stages in model order.

    ``hop_s``: one transfer between stages, which blocks the sender unless ``overlap_hops``; ``hops_s``: those from each
    virtual stage to the next and back, where they differ. ``one_port``: transfers and
    the traffic of replicas leave a device by the same port, which they share while both are under way; but for gathers,
    where ``gathers_near``. ``tied_s``: the
    all-reduce of a tied table. ``overlap_gradients``, ``overlap_parameters``: shares that may run under computation.
    ``overlap_slowdown``, ``traffic_slowdown``: factors on the seconds of passes beside traffic of replicas, and of that
    traffic beside passes.
    ``host_bytes_per_s``: between a device and the host, one direction. ``in_flight``: most microbatches that each
    device-stage keeps activations of (empty: as the schedule has it).
    """

    schedule: int
    shape: PipelineShape
    chunks: tuple[ChunkCost, ...]
    stages: tuple[StageCost, ...]
    hop_s: float = 0.0
    hops_s: tuple[tuple[float, float], ...] = ()
    overlap_hops: bool = True
    one_port: bool = False
    tied_s: float = 0.0
    zero: int = 0
    overlap_gradients: float = 0.0
    overlap_parameters: float = 0.0
    overlap_slowdown: float = 1.0
    traffic_slowdown: float = 1.0
    host_step_s: float = 0.0
    host_microbatch_s: float = 0.0
    in_flight: tuple[int, ...] = ()
    host_bytes_per_s: float = 0.0
    gathers_near: bool = False

    def hop_from(self, chunk: int, *, back: bool) -> float:
        """Return the seconds from a virtual stage to the next, or back to the one before it."""
        return self.hops_s[chunk - back][back] if self.hops_s else self.hop_s


def step_costs(context: Context, strategy: Strategy) -> StepCosts:
    """Return the costs of one step under a strategy, which must be legal.

    Raises:
        RequestError: a cost rule knows no such operator, link or precision.
    """
    table, profile = table_of([strategy]), context.framework
    shape = PipelineShape(
        pp=strategy.pp,
        vpp=strategy.vpp,
        microbatches=context.workload.global_batch // (strategy.dp * strategy.mbs),
    )
    held = chunk_blocks(context, table, strategy)
    homes = [chunks_of_stage(strategy.pp, strategy.vpp, strategy.schedule, stage) for stage in range(strategy.pp)]
    on = np.stack([held[:, list(chunks)].sum(axis=1) for chunks in homes], axis=1)
    shard = shard_of(context, table, np.zeros(1, dtype=np.intp))
    replicas = _replicas(context, strategy, _parameters(context, strategy, on))
    stall = _stall(context, shape, strategy, shard, on, replicas) if profile.allocator_stall else 0.0
    none = np.zeros(held.shape[1])
    return StepCosts(
        schedule=int(strategy.schedule),
        shape=shape,
        chunks=chunk_costs(strategy_passes(context, strategy, shard, held), none, none, stall),
        stages=_stage_costs(context, strategy, held, homes, replicas),
        hop_s=float(hop_time_s(context, table)[0]),
        overlap_hops=profile.overlap_pipeline,
        one_port=one_port(context, strategy),
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


def still_reduce_s(context: Context, strategy: Strategy) -> list[float]:
    """Return the seconds of one pass over the gradients of every stage that no faster links would save."""
    fast = replace(context, cluster=line_rate_cluster(context, strategy))
    reduce_s: list[float] = _replicas(fast, strategy, _stage_parameters(context, strategy)).reduce_s.tolist()
    return reduce_s


def stage_parameter_counts(context: Context, strategy: Strategy) -> tuple[Floats, Floats]:
    """Return how many parameters every stage has on one device, and how many of them another stage has too."""
    parameters = _stage_parameters(context, strategy)
    return np.asarray((parameters.dense + parameters.expert)[0]), np.asarray(parameters.tied[0])


def _stage_parameters(context: Context, strategy: Strategy) -> StageParameters:
    held = chunk_blocks(context, table_of([strategy]), strategy)
    homes = [chunks_of_stage(strategy.pp, strategy.vpp, strategy.schedule, stage) for stage in range(strategy.pp)]
    return _parameters(context, strategy, np.stack([held[:, list(chunks)].sum(axis=1) for chunks in homes], axis=1))


def chunk_blocks(context: Context, table: StrategyTable, strategy: Strategy) -> Floats:
    """Return [layer kinds + 2, virtual stages]: layers of each kind, then 1.0 with the embedding, then with the head.

    MTP blocks count on the last virtual stage, as in ``stage_plan``.
    """
    split = int(table.column("split")[0])
    counts = stage_layers(
        context.model.layer_count, strategy.pp, strategy.vpp, split, table.custom_splits, context.head_layers
    )
    kinds, entries = layer_kinds(context.model), context.model.layers
    kind_of_layer = np.repeat(kind_of_entry(context.model), [layer.count for layer in entries])
    blocks = np.zeros((len(kinds) + 2, len(counts)))
    np.add.at(blocks, (kind_of_layer, np.repeat(np.arange(len(counts)), counts)), 1.0)
    blocks[kind_of_layer[-1], -1] += context.model.mtp_layers
    blocks[-2, 0] = blocks[-1, -1] = 1.0
    return blocks


def _stall(
    context: Context,
    shape: PipelineShape,
    strategy: Strategy,
    shard: Shard,
    on: Floats,
    replicas: ReplicaCosts,
) -> float:
    """Return the share of a step that the allocator loses where its idle buffers find no room on the fullest stage."""
    stages = np.arange(strategy.pp)
    number = stages[None, :].astype(np.float64)
    numbers = (float(strategy.schedule), float(shape.pp), float(shape.vpp), float(shape.microbatches))
    schedule, pp, vpp, count = (np.full(strategy.pp, number) for number in numbers)
    same: NDArray[np.intp] = np.zeros(strategy.pp, dtype=np.intp)
    moving = stage_memory(context, shard, same, on[:, None, :], number, schedule, pp, vpp, count)
    memory = total_memory(context, moving, stages, replicas, stages)
    fullest = int(np.argmax(memory.allocated_bytes))
    return context.framework.allocator_stall if memory.pressed[fullest] else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Seconds and bytes of C virtual stages on one microbatch, shape C each; times as in ``ChunkCost``, but of the
    device and of the host apart."""

    forward_s: Floats
    backward_s: Floats
    weight_s: Floats
    host_forward_s: Floats
    host_backward_s: Floats
    parts: Mapping[str, Floats]
    kept_bytes: Floats
    logit_bytes: Floats
    working_bytes: Floats


def strategy_passes(context: Context, strategy: Strategy, shard: Shard, held: Floats) -> Passes:
    """Return what virtual stages that hold ``held`` [kinds + 2, C] do under one strategy, whose shard is given."""
    times, count = block_times(context, shard), held.shape[1]
    recompute = np.full(count, int(strategy.recompute))
    tp = np.full(count, float(strategy.tp))
    host_forward_s, host_backward_s = host_passes_s(context, held[:-2], recompute, tp, float(strategy.pp))
    key: NDArray[np.intp] = np.zeros(count, dtype=np.intp)
    one = np.ones(count)
    # The last stage of 1F1B has one microbatch in flight.
    memory = stage_memory(
        context, shard, key, held[:, None, :], one[None, :] * 0.0, one * Schedule.ONE_F_ONE_B, one, one, one
    )
    return Passes(
        forward_s=times.forward_s[:, 0] @ held,
        backward_s=times.backward_s[:, 0] @ held,
        weight_s=times.weight_s[:, 0] @ held,
        host_forward_s=host_forward_s,
        host_backward_s=host_backward_s,
        # Stage by stage: a product with all of them would add up in another order beside other stages.
        parts={
            part: np.array([times.parts[part][:, 0] @ held[:, chunk] for chunk in range(count)]) for part in BLOCK_PARTS
        },
        kept_bytes=memory.kept[0],
        logit_bytes=memory.logits[0],
        working_bytes=memory.working[0],
    )


def chunk_costs(passes: Passes, there: Floats, back: Floats, stall: float) -> tuple[ChunkCost, ...]:
    """Return what every virtual stage costs; ``there`` and ``back``: seconds in front of its passes in which layouts
    change, ``stall``: share of all passes lost to the allocator."""
    device_s = passes.forward_s + passes.backward_s + there + back
    forward_s = np.maximum(passes.forward_s + there, passes.host_forward_s)
    backward_s = np.maximum(passes.backward_s + back, passes.host_backward_s)
    weight_s = np.maximum(passes.weight_s, passes.host_forward_s)
    gap_s = forward_s + backward_s - device_s
    parts = {**passes.parts, "tensor": passes.parts["tensor"] + there + back}
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
            working_bytes=float(passes.working_bytes[chunk]),
        )
        for chunk in range(len(forward_s))
    )


def _parameters(context: Context, strategy: Strategy, blocks: Floats) -> StageParameters:
    """Return the parameters of each column of ``blocks`` on one device."""
    count = blocks.shape[1]
    ones = np.ones((1, count))
    plans = StagePlans(multiplicity=ones, first=ones * 0.0, stage=ones * 0.0, lead=ones, blocks=blocks[:, None, :])
    tp, ep, etp = (np.full(count, float(degree)) for degree in (strategy.tp, strategy.ep, strategy.etp))
    return stage_parameters(context, plans, tp, ep, etp)


def _replicas(context: Context, strategy: Strategy, parameters: StageParameters) -> ReplicaCosts:
    """Return the once-per-step costs of every column of ``parameters``."""
    count = parameters.dense.shape[1]
    values = {axis: np.full(count, float(getattr(strategy, axis))) for axis in REPLICA_DEGREES}
    return replica_costs(context, Replicas(parameters=parameters, **values))


def _stage_costs(
    context: Context, strategy: Strategy, held: Floats, homes: list[tuple[int, ...]], costs: ReplicaCosts
) -> tuple[StageCost, ...]:
    each = _parameters(context, strategy, held)
    parameters = (each.dense + each.expert)[0]
    ranks = np.asarray(float(strategy.dp * strategy.cp))
    fixed = costs.parameter_bytes + costs.gradient_bytes + costs.optimizer_bytes + costs.buffer_bytes
    stages = []
    for stage, chunks in enumerate(homes):
        total = float(parameters[list(chunks)].sum())
        stages.append(
            StageCost(
                reduce_s=float(costs.reduce_s[stage]),
                gather_s=float(costs.gather_s[stage]),
                optimizer_s=float(costs.optimizer_s[stage]),
                buckets=int(gradient_buckets(context, total, ranks)),
                share={chunk: float(parameters[chunk]) / total if total else 0.0 for chunk in chunks},
                fixed_bytes=float(fixed[0, stage]),
            )
        )
    return tuple(stages)


def one_port(context: Context, strategy: Strategy) -> bool:
    """Whether the next stage and the replicas of this one are reached over links of the same level."""
    inner, replicas = strategy.tp * strategy.cp, strategy.dp * strategy.cp
    near = strategy.placement == Placement.TP_CP_EP_PP_DP
    farthest = inner * strategy.dp * (strategy.pp if near else 1)
    next_stage = inner * (1 if near else strategy.dp) + 1
    sizes = [level.size for level in context.cluster.levels]
    reached = [sum(size < devices for size in sizes) for devices in (next_stage, farthest)]
    return strategy.pp > 1 and replicas > 1 and reached[0] == reached[1]
