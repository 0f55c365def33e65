"""Assignment of a strategy with equal stages, different stages, or stages on different groups of nodes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forerun.simulator.assignment.value import Assignment, Placed
from forerun.simulator.layer.kinds import kind_of_entry, layer_kinds
from forerun.simulator.stages.plan import in_flight
from forerun.spaces.clusters import stage_groups
from forerun.spaces.errors import RequestError
from forerun.spaces.schedules import PipelineShape
from forerun.spaces.strategies import (
    ALL_LAYERS,
    Context,
    Placement,
    Recompute,
    Schedule,
    StageRecompute,
    Strategy,
    devices_of_rank,
    in_second_half,
    layers_of_chunks,
)
from forerun.spaces.strategies.racks import on_racks
from forerun.spaces.strategies.software import running


def assign(context: Context, strategy: Strategy) -> Assignment:
    """Return the assignment of a legal strategy.

    Raises
    ------
    RequestError
        The cluster's groups of nodes cannot fit the stages, or the strategy has neighbouring stages on one node or
        halves that differ in tp.
    """
    context = on_racks(running(context, strategy.software), strategy)
    grouped = bool(context.cluster.groups)
    first = strategy.half(False)
    counts = layers_of_chunks(strategy, context.model.layer_count, context.head_layers)
    whole = Assignment(
        contexts=context.on_groups if grouped else (context,),
        group_of_rank=_groups(context, strategy) if grouped else (0,) * strategy.pp,
        schedule=strategy.schedule,
        shape=PipelineShape(
            pp=strategy.pp,
            vpp=strategy.vpp,
            microbatches=context.workload.global_batch // (first.dp * first.mbs),
            ahead=context.framework.passes_ahead,
        ),
        layers=_placed(context, strategy, counts),
        devices=(),
    )
    devices = tuple(devices_of_rank(first, rank) for rank in whole.rank_of_chunk)
    return replace(whole, devices=devices, in_flight=_limits(context, strategy))


def _limits(context: Context, strategy: Strategy) -> tuple[int, ...]:
    """Return the limit of in-flight microbatches on every rank of 1F1B with a part of the vocabulary on all stages."""
    pp, vocabulary = strategy.pp, context.framework.vocabulary
    if vocabulary == "ends" or pp == 1 or strategy.schedule != Schedule.ONE_F_ONE_B:
        return ()
    one, ranks = np.ones(pp), np.arange(pp, dtype=np.float64)
    kept = in_flight(one * strategy.schedule, ranks, one * pp, one, one * np.inf, vocabulary=vocabulary)
    return tuple(int(count) for count in kept)


def _groups(context: Context, strategy: Strategy) -> tuple[int, ...]:
    """Return the group of nodes of every pipeline rank.

    Raises
    ------
    RequestError
        As for ``assign``.
    """
    if strategy.placement != Placement.TP_CP_EP_DP_PP or strategy.second_tp is not None:
        raise RequestError(
            f"stages of {strategy} are not on consecutive devices of their own, as groups of nodes need; drop the "
            "placement or the second tp"
        )
    return stage_groups(context.cluster, strategy.pp, strategy.dp * strategy.tp * strategy.cp)


def _placed(context: Context, strategy: Strategy, counts: Sequence[int]) -> tuple[tuple[Placed, ...], ...]:
    """Return the layers of every virtual stage; MTP blocks follow the head, which they repeat.

    Stages that differ are not divided: virtual stage and pipeline rank have the same number.
    """
    model = context.model
    kinds = [kind for kind, layer in zip(kind_of_entry(model), model.layers, strict=True) for _ in range(layer.count)]
    embedding = len(layer_kinds(model))
    layers = ALL_LAYERS if strategy.recompute_first else strategy.recompute_layers
    flat = replace(strategy, layers_per_stage=None, stage_recompute=None, recompute_layers=layers)
    halves = (flat.half(False), flat.half(True))
    rows, done = [], 0
    for chunk, count in enumerate(counts):
        settings = halves[in_second_half(chunk, strategy.pp)]
        if strategy.stage_offload is not None:
            settings = replace(settings, stage_offload=(strategy.stage_offload[chunk],) * strategy.pp)
        recomputed = settings
        some = count
        entry = None if strategy.stage_recompute is None else strategy.stage_recompute[chunk]
        if strategy.recompute_first:
            entry = StageRecompute(strategy.recompute, strategy.recompute_first)
        if entry is not None:
            recomputed = replace(settings, recompute=entry.kind)
            # Where only some layers are named, further predicted layers are not among them.
            settings = recomputed if entry.layers is None else replace(settings, recompute=Recompute.NONE)
            some = count if entry.layers is None else entry.layers
        row = [
            Placed(kind, recomputed if place < some else settings)
            for place, kind in enumerate(kinds[done : done + count])
        ]
        done += count
        if chunk == 0:
            row.insert(0, Placed(embedding, settings))
        if chunk == len(counts) - 1:
            row += [Placed(embedding + 1, settings), *[Placed(kinds[-1], settings)] * model.mtp_layers]
        rows.append(tuple(row))
    return tuple(rows)
