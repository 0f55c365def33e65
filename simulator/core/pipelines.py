"""Pipelined part of a step: passes of every stage, their schedule, and the resulting parts of the step.

Shapes: B blocks (kinds of layers, embedding, head), R runs of equal stages, S candidates with distinct pipelines.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.core.values import Pipelines
from forerun.simulator.costs.slowest import wait_share
from forerun.simulator.layer.known_times import known_block_times
from forerun.simulator.layer.shard import Shard, layer_axes, shard_of
from forerun.simulator.layer.times import BlockTimes, host_passes_s, unpaired_share
from forerun.simulator.memory.peak import StageMemory, activation_memory
from forerun.simulator.pipeline.closed_forms import PipelineTime, pipeline_time
from forerun.simulator.pipeline.interleaved import RATES, path_seconds
from forerun.simulator.replicas.buffers import stays_whole
from forerun.simulator.replicas.sharded import (
    before_gradients_s,
    crossed_ranks,
    gradient_pass_s,
    looped_passes,
    slowest_passes,
)
from forerun.simulator.score_table import Floats
from forerun.simulator.stages.plan import StagePlans
from forerun.spaces.schedules.catalogue import streams_of, with_trait
from forerun.spaces.schedules.stage_times import StageTimes
from forerun.spaces.schedules.zb_v import VeePasses, zb_v_s
from forerun.spaces.strategies import Context, StrategyTable, first_layers, group_size


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stages:
    """Stages of S candidates, with their shared sub-results gathered for each."""

    context: Context
    plans: StagePlans
    plan: NDArray[np.intp]
    """Index into ``plans``, [S]."""
    shard: Shard
    key: NDArray[np.intp]
    """Index into ``shard``, [S]."""
    blocks: Floats
    """Blocks of every stage, [B, R, S]."""
    not_recomputed: Floats | None
    """Layers of every stage that full recompute leaves out, [B - 2, R, S]."""
    recompute_layers: NDArray[np.int64]
    pp: Floats
    vpp: Floats
    schedule: Floats
    dp: Floats
    microbatches: Floats
    stream_share: Floats
    """Share of a rank's blocks that a microbatch runs: under DualPipe a rank has blocks of two directions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates(_Stages):
    """Stages of S candidates, with the times of their blocks."""

    times: BlockTimes
    """Times of the columns of ``shard``."""
    unpaired_s: Sequence[Floats]
    """Additional seconds of blocks without a simultaneous pass of another microbatch, forward and backward, [B, S].
    Empty where passes are always paired."""


def pipelines_of(
    context: Context, table: StrategyTable, plans: StagePlans, plan: NDArray[np.intp], rows: NDArray[np.intp]
) -> Pipelines:
    """Compute the pipelined part of some ``rows`` of a table; ``plan``: each row's column of ``plans``."""
    these = _timed(_stages(context, table, plans, plan, rows))
    stages, launch_bound_s = _stage_times(these)
    profile = context.framework
    time = pipeline_time(
        stages,
        these.schedule,
        these.pp,
        these.vpp,
        these.microbatches,
        overlap=profile.overlap_pipeline,
        paths=_paths_s(these),
    )
    passes = slowest_passes(
        stages,
        time.slowest,
        these.schedule,
        these.pp,
        these.vpp,
        these.microbatches,
        overlap=profile.overlap_pipeline,
        hidden_per_s=context.overlap.hidden_per_s,
        whole=stays_whole(profile, these.pp),
    )
    return Pipelines(
        time=time,
        parts_s=_parts_s(these, time, launch_bound_s),
        stages=stages,
        before_gradients_s=before_gradients_s(stages, these.schedule, time.busy_s / these.microbatches),
        gradient_pass_s=gradient_pass_s(stages, these.schedule),
        passes=passes,
        crossed=crossed_ranks(these.schedule, these.pp),
        loops=looped_passes(stages, passes, time.rounds, time.group, context.overlap.hidden_per_s),
        idle_s=_idle_s(these, stages),
        microbatches=these.microbatches,
        pp=these.pp,
        memory=_activations(these),
    )


def activations_of(
    context: Context, table: StrategyTable, plans: StagePlans, plan: NDArray[np.intp], rows: NDArray[np.intp]
) -> StageMemory:
    """Compute the activations that every stage of some ``rows`` of a table keeps; arguments as for ``pipelines_of``."""
    return _activations(_stages(context, table, plans, plan, rows))


def _stages(
    context: Context, table: StrategyTable, plans: StagePlans, plan: NDArray[np.intp], rows: NDArray[np.intp]
) -> _Stages:
    """Gather the shared sub-results of some rows of a table."""
    part = table.take(rows)
    layer_keys = part.distinct(*layer_axes(context))
    pp, vpp, schedule, dp, mbs = (
        part.column(axis).astype(np.float64) for axis in ("pp", "vpp", "schedule", "dp", "mbs")
    )
    return _Stages(
        context=context,
        plans=plans,
        plan=plan,
        shard=shard_of(context, part, layer_keys.rows),
        key=layer_keys.inverse,
        blocks=plans.blocks[:, :, plan],
        not_recomputed=None if plans.spared is None else plans.spared[:, :, plan],
        recompute_layers=part.column("recompute_layers"),
        pp=pp,
        vpp=vpp,
        schedule=schedule,
        dp=dp,
        microbatches=context.workload.global_batch / (dp * mbs),
        stream_share=1.0 / streams_of(schedule),
    )


def _timed(stages: _Stages) -> _Candidates:
    """Add the times of blocks to stages."""
    times = known_block_times(stages.context, stages.shard)
    unpaired_s: Sequence[Floats] = ()
    if times.alone_s is not None:
        share = unpaired_share(stages.schedule, stages.pp, stages.microbatches)
        unpaired_s = [values[:, stages.key] * share for values in times.alone_s]
    gathered = {entry.name: getattr(stages, entry.name) for entry in fields(stages)}
    return _Candidates(**gathered, times=times, unpaired_s=unpaired_s)


def _stage_times(these: _Candidates) -> tuple[StageTimes, Floats]:
    """Compute the passes of one microbatch on every stage, and their seconds [R, S] of waits for launches."""
    # A pass is the sum of its blocks, sum_b n_b t_b, and at least their launches on the host. The additional time of
    # blocks without a paired microbatch is added; recompute of spared layers is subtracted from the backward pass.
    blocks, times, key, share = these.blocks, these.times, these.key, these.stream_share
    layers_s, forward_s = _passes_s(blocks, times.forward_s[:, key], share)
    layers_back_s, backward_s = _passes_s(blocks, times.backward_s[:, key], share)
    if these.unpaired_s:
        more_s, more_back_s = (_dot(blocks, values) * share for values in these.unpaired_s)
        layers_s, forward_s = layers_s + more_s, forward_s + more_s
        layers_back_s, backward_s = layers_back_s + more_back_s, backward_s + more_back_s
    if these.not_recomputed is not None:  # only full recompute has them, under schedules without virtual stages
        saved_s = _dot(these.not_recomputed, times.recompute_s[:-2, key])
        layers_back_s, backward_s = layers_back_s - saved_s, backward_s - saved_s
    host_s, host_back_s = _host_s(these, blocks[:-2] * share, slice(None), these.not_recomputed)
    device_s = forward_s + backward_s
    launch_bound = ((host_s > layers_s) | (host_back_s > layers_back_s)).any(axis=0)
    launch_bound &= with_trait(these.schedule, lambda kind: kind.in_rounds)
    forward_s = _launched_s(forward_s, layers_s, host_s, launch_bound, these.vpp)
    backward_s = _launched_s(backward_s, layers_back_s, host_back_s, launch_bound, these.vpp)
    stages = StageTimes(
        forward_s=forward_s,
        backward_s=backward_s,
        weight_s=np.maximum(_dot(blocks, times.weight_s[:, key]) * share, host_s),
        multiplicity=these.plans.multiplicity[:, these.plan],
        first=these.plans.first[:, these.plan],
        prepare_s=these.context.framework.host_microbatch_s,
    )
    return stages, forward_s + backward_s - device_s


def _host_s(
    these: _Candidates,
    layers: Floats,
    some: slice | NDArray[np.intp],
    not_recomputed: Floats | None,
) -> tuple[Floats, Floats]:
    """Return the seconds of the host's launches of the forward and the backward pass of ``layers``, [.., S]."""
    key = these.key[some]
    return host_passes_s(
        these.context, layers, these.shard.recompute[key], these.shard.tp[key], these.pp[some], not_recomputed
    )


def _paths_s(these: _Candidates) -> tuple[Floats, Floats]:
    """Compute the seconds of long paths through a schedule and their transfers, [paths, S].

    Paths are needed for virtual stages in rounds or along a V; 0 for other schedules.
    """
    path_s, transfers = np.zeros((2, len(RATES), len(these.plan)))
    if these.plans.paths is not None:
        some = np.flatnonzero(these.plans.paths.held.sum(axis=(0, 1))[these.plan])
        path_s[:, some], transfers[:, some] = _interleaved_s(these, some)
    if these.plans.down is not None:
        some = np.flatnonzero(with_trait(these.schedule, lambda kind: kind.turns_back))
        path_s[:, some] = zb_v_s(_vee_passes(these, some), these.pp[some], these.microbatches[some])
    return path_s, transfers


def _interleaved_s(these: _Candidates, some: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Compute the paths of some candidates with virtual stages in rounds."""
    assert these.plans.paths is not None
    times, key, once_s = these.times, these.key[some], these.context.framework.host_microbatch_s
    paths = these.plans.paths.columns(these.plan[some])
    chunks = np.moveaxis(paths.held, 0, 1)
    kept = _left_of_chunks(chunks[:-2], first_layers(these.recompute_layers[some]))
    host_s, host_back_s = _host_s(these, chunks[:-2], some, kept)
    forward_s, backward_s = _dot(chunks, times.forward_s[:, key]), _dot(chunks, times.backward_s[:, key])
    if these.unpaired_s:
        more_s, more_back_s = (_dot(chunks, values[:, some]) for values in these.unpaired_s)
        forward_s, backward_s = forward_s + more_s, backward_s + more_back_s
    if kept is not None:
        backward_s = backward_s - _dot(kept, times.recompute_s[:-2, key])
    groups = (these.microbatches / these.pp)[some]
    passes_s = np.maximum(forward_s, host_s), np.maximum(backward_s, host_back_s)
    seconds, transfers = path_seconds(paths, *passes_s, once_s, groups)
    # Host time per microbatch is added to every step.
    return seconds - once_s * these.microbatches[some], transfers


def _idle_s(these: _Candidates, stages: StageTimes) -> tuple[Floats, Floats]:
    """Compute the first stage's idle seconds [S] while a pipeline of unequal virtual stages fills and drains."""
    if these.plans.paths is None:
        return np.zeros(len(these.plan)), np.zeros(len(these.plan))
    fills, drains = these.plans.paths.idle[:, these.plan]
    return fills * stages.forward_s[0], drains * stages.backward_s[0]


def _vee_passes(these: _Candidates, some: NDArray[np.intp]) -> VeePasses:
    """Return the passes of both virtual stages of every rank of some candidates with stages along a V."""
    assert these.plans.down is not None
    plan, times, key = these.plan[some], these.times, these.key[some]
    down = these.plans.down[:, :, plan]
    forward, inputs, weight = [], [], []
    for blocks in (down, these.plans.blocks[:, :, plan] - down):
        host_s, host_back_s = _host_s(these, blocks[:-2], some, None)
        forward_s, backward_s = _dot(blocks, times.forward_s[:, key]), _dot(blocks, times.backward_s[:, key])
        if these.unpaired_s:
            more_s, more_back_s = (_dot(blocks, values[:, some]) for values in these.unpaired_s)
            forward_s, backward_s = forward_s + more_s, backward_s + more_back_s
        forward.append(np.maximum(forward_s, host_s))
        weight.append(np.maximum(_dot(blocks, times.weight_s[:, key]), host_s))
        inputs.append(np.maximum(backward_s, host_back_s) - weight[-1])
    return VeePasses(
        forward_s=(forward[0], forward[1]),
        input_s=(inputs[0], inputs[1]),
        weight_s=(weight[0], weight[1]),
        multiplicity=these.plans.multiplicity[:, plan],
        first=these.plans.first[:, plan],
    )


def _parts_s(these: _Candidates, time: PipelineTime, launch_bound_s: Floats) -> dict[str, Floats]:
    """Compute the parts of a step [S] that the slowest stage spends on its microbatches."""
    # Part p of a step is m sum_b n_b t_b,p over the blocks of the slowest stage, m microbatches.
    decides, key = (time.slowest, np.arange(len(these.plan))), these.key
    slowest = these.blocks[:, *decides] * (these.stream_share * these.microbatches)
    parts = {name: _dot(slowest, values[:, key]) for name, values in these.times.parts.items()}
    if these.not_recomputed is not None:
        fewer = these.not_recomputed[:, *decides] * these.microbatches
        parts |= {name: parts[name] - _dot(fewer, values[:-2, key]) for name, values in these.times.recompute.items()}
    if these.unpaired_s:
        parts["expert"] = parts["expert"] + _dot(slowest, these.unpaired_s[0] + these.unpaired_s[1])
    waits_s = wait_share(these.dp * these.shard.cp[key]) * (parts["compute"] + parts["recompute"])
    parts["host"] = launch_bound_s[decides] * these.microbatches + waits_s
    return parts


def _activations(these: _Stages) -> StageMemory:
    """Compute the activations that every stage keeps, [R, S]."""
    return activation_memory(
        these.context,
        these.shard,
        these.key,
        these.blocks,
        these.plans.stage[:, these.plan],
        these.schedule,
        these.pp,
        these.vpp,
        these.microbatches,
        these.plans.in_flight_factor[:, these.plan],
        these.not_recomputed,
        _groups(these.recompute_layers),
    )


def _groups(layers: NDArray[np.int64]) -> Floats | None:
    """Return the number of layers recomputed at once, by column; None where no candidate has several."""
    sizes = group_size(layers)
    return sizes.astype(np.float64) if (sizes > 1).any() else None


def _left_of_chunks(layers: Floats, some: NDArray[np.int64]) -> Floats | None:
    """Return the layers of virtual stages [kinds, ...] after the first ``some`` (0: none), in equal shares of each
    kind.

    None where all or no layers are recomputed.
    """
    if not some.any():
        return None
    total = layers.sum(axis=0)
    left = np.where(some > 0, np.maximum(total - some, 0.0), 0.0)
    return np.asarray(layers * (left / np.maximum(total, 1.0)))


def _launched_s(
    passes_s: Floats, layers_s: Floats, launches_s: Floats, launch_bound: NDArray[np.bool_], rounds: Floats
) -> Floats:
    """Return the seconds of passes, at least their launches, [R, S].

    Every virtual stage of an interleaved device waits for the host separately: where layers are ``launch_bound``, the
    additional time of embedding or head (``passes_s`` less ``layers_s``) hides launches in only one of ``rounds``.
    """
    pass_s = np.maximum(passes_s, launches_s)
    some = np.flatnonzero(launch_bound)
    if len(some):
        inner, host, turns = layers_s[:, some], launches_s[:, some], rounds[some]
        ends = passes_s[:, some] - inner
        pass_s[:, some] = (turns - 1) / turns * np.maximum(inner, host) + np.maximum(inner / turns + ends, host / turns)
    return pass_s


def _passes_s(blocks: Floats, values: Floats, share: Floats) -> tuple[Floats, Floats]:
    """Return the sum over layers alone, and a ``share`` of the sum over all blocks (``_dot``)."""
    layers = _dot(blocks[:-2], values[:-2])
    total_s = layers + blocks[-2] * values[-2]
    total_s += blocks[-1] * values[-1]
    total_s *= share
    return layers, total_s


def _dot(blocks: Floats, values: Floats) -> Floats:
    """Sum over blocks of counts [B, R, S] times values [B, S]."""
    total: Floats = blocks[0] * values[0]
    for count, value in zip(blocks[1:], values[1:], strict=True):
        total += count * value
    return total
