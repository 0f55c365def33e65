"""The vectorised core: seconds and bytes of every candidate of a table.

A candidate's cost is put together from sub-results that depend on few axes. Each is computed once per distinct key and
gathered: blocks (tp, cp, ep, etp, mbs, sp, recompute), stage plans (pp, vpp, schedule, split), replicas (all but the
microbatch), pipelines (all but zero and placement), transfers. No Python object is made per candidate.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.core.assembly import Pipelines, step_scores
from forerun.simulator.core.staged import staged_score
from forerun.simulator.costs.slowest import wait_share
from forerun.simulator.layer.known_times import known_block_times
from forerun.simulator.layer.shard import Shard, layer_axes, shard_of
from forerun.simulator.layer.times import BlockTimes, host_passes_s, unpaired_share
from forerun.simulator.memory.peak import activation_memory
from forerun.simulator.pipeline.closed_forms import pipeline_time
from forerun.simulator.pipeline.interleaved import path_seconds
from forerun.simulator.pipeline.p2p import P2P_AXES, p2p_time_s
from forerun.simulator.replicas.reduction import (
    REPLICA_AXES,
    REPLICA_DEGREES,
    ReplicaCosts,
    Replicas,
    replica_costs,
    stays_whole,
)
from forerun.simulator.replicas.sharded import before_gradients_s, gradient_pass_s, looped_passes, slowest_passes
from forerun.simulator.score_table import Floats, ScoreTable, joined
from forerun.simulator.stages.parameters import stage_parameters, table_share
from forerun.simulator.stages.plan import PLAN_AXES, StagePlans, stage_plans
from forerun.spaces.schedules.catalogue import rounds_of, streams_of, with_trait
from forerun.spaces.schedules.stage_times import StageTimes
from forerun.spaces.schedules.zb_v import VeePasses, zb_v_s
from forerun.spaces.strategies import Context, StrategyTable, first_layers, group_size
from forerun.spaces.strategies.software import running

_STAGE_AXES = ("gpus", "pp", "tp", "cp", "ep", "etp", "vpp", "schedule", "split")
PIPELINE_AXES = (*_STAGE_AXES, "mbs", "sp", "recompute", "recompute_layers")
"""Axes that the pipelined part of a step depends on, besides those of its layers."""


def score(context: Context, table: StrategyTable) -> ScoreTable:
    """Return time and memory of every candidate of ``table``, legal or not, row by row.

    Raises:
        RequestError: the device lacks the workload's precision, or a cost rule knows no such operator or link.
    """
    software = table.choices["software"]
    if len(software) == 1 or not software.any():
        scores = _same_software(running(context, int(software[0]) if len(software) else 0), table)
        return corrected(context, table, scores, scores.time_s)
    own = table.codes["software"]
    groups = [np.flatnonzero(own == code) for code in range(len(software))]
    parts = [
        _same_software(running(context, int(software[code])), table.take(rows))
        for code, rows in enumerate(groups)
        if len(rows)
    ]
    scores = joined(parts, np.argsort(np.concatenate(groups), kind="stable"))
    return corrected(context, table, scores, scores.time_s)


def _same_software(context: Context, table: StrategyTable) -> ScoreTable:
    """Return the scores of a table whose rows turn the same switches on, which ``context`` has."""
    return _some_staged(context, table) if table.stage_choices else _flat(context, table)


def corrected(context: Context, table: StrategyTable, scores: ScoreTable, time_s: Mapping[str, Floats]) -> ScoreTable:
    """Return scores as measured runs correct them, where the context was calibrated; ``time_s``: parts of the step as
    this level predicts them, by which strategies are told to be alike."""
    known = context.correction
    if known is None:
        return scores
    slowed = scores.slowed(known.factor(context, table, time_s))
    held = known.memory(context, table, scores.memory_bytes)
    return slowed if held is None else slowed.holding(held)


def _flat(context: Context, table: StrategyTable) -> ScoreTable:
    """Return the scores of a table whose stages are alike."""
    plan_keys = table.distinct(*PLAN_AXES)
    plans = stage_plans(context, table, plan_keys.rows)
    keys = table.distinct(*dict.fromkeys((*PIPELINE_AXES, *layer_axes(context))))
    pipelines = _pipelines(context, table, plans, plan_keys.inverse[keys.rows], keys.rows)
    replica_keys = table.distinct(*REPLICA_AXES)
    replicas, tables = _replicas(context, table, plans, plan_keys.inverse[replica_keys.rows], replica_keys.rows)
    p2p_keys = table.distinct(*P2P_AXES)
    p2p_s = p2p_time_s(context, table.take(p2p_keys.rows))[p2p_keys.inverse]
    zero = table.column("zero")
    return step_scores(context, pipelines, keys.inverse, replicas, replica_keys.inverse, zero, p2p_s, tables)


def _some_staged(context: Context, table: StrategyTable) -> ScoreTable:
    """Return the scores of a table some rows of which have stages that differ."""
    staged = np.array([choices is not None for choices in table.stage_choices])
    parts = [staged_score(context, table.take(np.flatnonzero(staged)))]
    if not staged.all():
        parts.append(_flat(context, table.take(np.flatnonzero(~staged))))
    return joined(parts, np.argsort(np.argsort(~staged, kind="stable"), kind="stable"))


def _floats(table: StrategyTable, rows: NDArray[np.intp], *axes: str) -> list[Floats]:
    """Return columns of some rows as floats."""
    return [table.choices[axis][table.codes[axis][rows]].astype(np.float64) for axis in axes]


def _pipelines(
    context: Context, table: StrategyTable, plans: StagePlans, plan: NDArray[np.intp], rows: NDArray[np.intp]
) -> Pipelines:
    """Return the pipelined part of S strategies; ``plan`` is the column of ``plans`` of each."""
    part = table.take(rows)
    layer_keys = part.distinct(*layer_axes(context))
    shard = shard_of(context, part, layer_keys.rows)
    times, key = known_block_times(context, shard), layer_keys.inverse
    blocks = plans.blocks[:, :, plan]
    pp, vpp, schedule, dp, mbs = _floats(table, rows, "pp", "vpp", "schedule", "dp", "mbs")
    microbatches = context.workload.global_batch / (dp * mbs)
    halves = 1.0 / streams_of(schedule)
    inner_s, forward_s = _passes_s(blocks, times.forward_s[:, key], halves)
    inner_back_s, backward_s = _passes_s(blocks, times.backward_s[:, key], halves)
    alone_s = list[Floats]()
    if times.alone_s is not None:
        share = unpaired_share(schedule, pp, microbatches)
        alone_s = [values[:, key] * share for values in times.alone_s]
        more_s, more_back_s = (_dot(blocks, values) * halves for values in alone_s)
        inner_s, forward_s = inner_s + more_s, forward_s + more_s
        inner_back_s, backward_s = inner_back_s + more_back_s, backward_s + more_back_s
    spared = None if plans.spared is None else plans.spared[:, :, plan]
    if spared is not None:  # full recompute alone has them, under schedules of whole stages
        saved_s = _dot(spared, times.recompute_s[:-2, key])
        inner_back_s, backward_s = inner_back_s - saved_s, backward_s - saved_s
    host_forward_s, host_backward_s = host_passes_s(
        context, blocks[:-2] * halves, shard.recompute[key], shard.tp[key], pp, spared
    )
    device_s = forward_s + backward_s
    late = ((host_forward_s > inner_s) | (host_backward_s > inner_back_s)).any(axis=0)
    late &= with_trait(schedule, lambda kind: kind.in_rounds)
    forward_s = _launched_s(forward_s, inner_s, host_forward_s, late, vpp)
    backward_s = _launched_s(backward_s, inner_back_s, host_backward_s, late, vpp)
    gap_s = forward_s + backward_s - device_s
    stages = StageTimes(
        forward_s=forward_s,
        backward_s=backward_s,
        weight_s=np.maximum(_dot(blocks, times.weight_s[:, key]) * halves, host_forward_s),
        multiplicity=plans.multiplicity[:, plan],
        first=plans.first[:, plan],
    )
    least_s = np.zeros(len(rows))
    if plans.paths is not None:
        uneven = np.flatnonzero(plans.paths.held.sum(axis=(0, 1))[plan])
        paths, own = plans.paths.columns(plan[uneven]), key[uneven]
        chunks, once_s = np.moveaxis(paths.held, 0, 1), context.framework.host_microbatch_s
        left = _left_of_chunks(chunks[:-2], first_layers(table.column("recompute_layers")[rows[uneven]]))
        launches = host_passes_s(context, chunks[:-2], shard.recompute[own], shard.tp[own], pp[uneven], left)
        there, back = _dot(chunks, times.forward_s[:, own]), _dot(chunks, times.backward_s[:, own])
        if alone_s:
            there = there + _dot(chunks, alone_s[0][:, uneven])
            back = back + _dot(chunks, alone_s[1][:, uneven])
        there = np.maximum(there, launches[0])
        back = back if left is None else back - _dot(left, times.recompute_s[:-2, own])
        back = np.maximum(back, launches[1])
        # What the host takes once per microbatch is added to every step.
        path_s = path_seconds(paths, there, back, once_s, (microbatches / pp)[uneven])
        least_s[uneven] = path_s - once_s * microbatches[uneven]
    if plans.down is not None:
        vee = np.flatnonzero(with_trait(schedule, lambda kind: kind.turns_back))
        alone = [values[:, vee] for values in alone_s]
        vee_passes = _vee_passes(context, plans, plan[vee], shard, times, key[vee], pp[vee], alone)
        least_s[vee] = zb_v_s(vee_passes, pp[vee], microbatches[vee])
    overlap = context.framework.overlap_pipeline
    time = pipeline_time(stages, schedule, pp, vpp, microbatches, overlap=overlap, least_s=least_s)
    decides = time.slowest, np.arange(len(rows))
    slowest = blocks[:, *decides] * (halves * microbatches)
    parts = {name: _dot(slowest, values[:, key]) for name, values in times.parts.items()}
    if spared is not None:
        fewer = spared[:, *decides] * microbatches
        parts |= {name: parts[name] - _dot(fewer, values[:-2, key]) for name, values in times.recompute.items()}
    if alone_s:
        parts["expert"] = parts["expert"] + _dot(slowest, alone_s[0] + alone_s[1])
    waits_s = wait_share(dp * shard.cp[key]) * (parts["compute"] + parts["recompute"])
    parts["host"] = gap_s[decides] * microbatches + waits_s
    hidden_per_s = context.overlap.hidden_per_s
    passes = slowest_passes(
        stages,
        time.slowest,
        schedule,
        pp,
        vpp,
        microbatches,
        overlap=overlap,
        hidden_per_s=hidden_per_s,
        whole=stays_whole(context.framework, pp),
    )
    return Pipelines(
        time=time,
        parts_s=parts,
        forward_s=stages.forward_s[0],
        backward_s=stages.backward_s[0],
        before_gradients_s=before_gradients_s(stages, schedule, time.busy_s / microbatches),
        gradient_pass_s=gradient_pass_s(stages, schedule),
        passes=passes,
        loops=looped_passes(stages, passes, time.rounds, time.group, hidden_per_s),
        microbatches=microbatches,
        pp=pp,
        memory=activation_memory(
            context,
            shard,
            key,
            blocks,
            plans.stage[:, plan],
            schedule,
            pp,
            vpp,
            microbatches,
            plans.in_flight_factor[:, plan],
            spared,
            _groups(table.column("recompute_layers")[rows]),
        ),
    )


def _groups(layers: NDArray[np.int64]) -> Floats | None:
    """Return how many layers are recomputed at once by column; None where no candidate has several."""
    sizes = group_size(layers)
    return sizes.astype(np.float64) if (sizes > 1).any() else None


def _left_of_chunks(layers: Floats, some: NDArray[np.int64]) -> Floats | None:
    """Return which of the layers of virtual stages [kinds, ...] stand behind the first ``some`` (0: none do), kinds in
    equal shares; None where all are recomputed or none."""
    if not some.any():
        return None
    total = layers.sum(axis=0)
    left = np.where(some > 0, np.maximum(total - some, 0.0), 0.0)
    return np.asarray(layers * (left / np.maximum(total, 1.0)))


def _launched_s(
    passes_s: Floats, layers_s: Floats, launches_s: Floats, late: NDArray[np.bool_], rounds: Floats
) -> Floats:
    """Return the seconds of passes that are no shorter than their launches, [R, S].

    Every virtual stage of an interleaved device waits for the host by itself: where it is ``late`` for layers, what
    embedding or head take besides (``passes_s`` less ``layers_s``) makes up for it in one of ``rounds`` alone.
    """
    whole = np.maximum(passes_s, launches_s)
    some = np.flatnonzero(late)
    if len(some):
        inner, host, turns = layers_s[:, some], launches_s[:, some], rounds[some]
        ends = passes_s[:, some] - inner
        whole[:, some] = (turns - 1) / turns * np.maximum(inner, host) + np.maximum(inner / turns + ends, host / turns)
    return whole


def _passes_s(blocks: Floats, values: Floats, share: Floats) -> tuple[Floats, Floats]:
    """Return a ``share`` of the sum over blocks as ``_dot`` does, and that over layers alone before it, whole."""
    layers = _dot(blocks[:-2], values[:-2])
    whole = layers + blocks[-2] * values[-2]
    whole += blocks[-1] * values[-1]
    whole *= share
    return layers, whole


def _vee_passes(
    context: Context,
    plans: StagePlans,
    plan: NDArray[np.intp],
    shard: Shard,
    times: BlockTimes,
    key: NDArray[np.intp],
    pp: Floats,
    alone_s: Sequence[Floats],
) -> VeePasses:
    """Return the passes of both virtual stages of every device of some strategies whose stages stand in a V;
    ``alone_s``: what (forward, backward) passes of every block take besides, if anything."""
    assert plans.down is not None
    down = plans.down[:, :, plan]
    forward, inputs, weight = [], [], []
    for blocks in (down, plans.blocks[:, :, plan] - down):
        launches = host_passes_s(context, blocks[:-2], shard.recompute[key], shard.tp[key], pp)
        there, back = _dot(blocks, times.forward_s[:, key]), _dot(blocks, times.backward_s[:, key])
        if alone_s:
            there, back = there + _dot(blocks, alone_s[0]), back + _dot(blocks, alone_s[1])
        forward.append(np.maximum(there, launches[0]))
        weight.append(np.maximum(_dot(blocks, times.weight_s[:, key]), launches[0]))
        inputs.append(np.maximum(back, launches[1]) - weight[-1])
    return VeePasses(
        forward_s=(forward[0], forward[1]),
        input_s=(inputs[0], inputs[1]),
        weight_s=(weight[0], weight[1]),
        multiplicity=plans.multiplicity[:, plan],
        first=plans.first[:, plan],
    )


def _dot(blocks: Floats, values: Floats) -> Floats:
    """Sum over blocks of counts [B, R, S] times values [B, S]."""
    total: Floats = blocks[0] * values[0]
    for count, value in zip(blocks[1:], values[1:], strict=True):
        total += count * value
    return total


def _replicas(
    context: Context, table: StrategyTable, plans: StagePlans, plan: NDArray[np.intp], rows: NDArray[np.intp]
) -> tuple[ReplicaCosts, Floats]:
    """Return the once-per-step costs of D strategies, and what a token table is of their largest stages."""
    degrees = dict(zip(REPLICA_DEGREES, _floats(table, rows, *REPLICA_DEGREES), strict=True))
    parameters = stage_parameters(context, plans.blocks[:, :, plan], degrees["tp"], degrees["ep"], degrees["etp"])
    share = table_share(context, parameters, degrees["tp"])
    schedule, vpp = _floats(table, rows, "schedule", "vpp")
    rounds = rounds_of(schedule, vpp)
    return replica_costs(context, Replicas(parameters=parameters, rounds=rounds, virtual=vpp, **degrees)), share
