"""Memory of every pipeline stage of one strategy, by the rules that give the peak of a candidate.

The vectorised core keeps only the fullest of a few representative stages; reports want all of them.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.assignment.stage_costs import stage_passes, stage_replicas
from forerun.simulator.events.step.costs import chunk_blocks
from forerun.simulator.layer.shard import shard_of
from forerun.simulator.memory.peak import StageMemory, stage_memory, total_memory
from forerun.simulator.replicas.reduction import REPLICA_DEGREES, ReplicaCosts, Replicas, replica_costs
from forerun.simulator.score_table import MEMORY_PARTS, Floats
from forerun.simulator.stages.parameters import stage_parameters
from forerun.simulator.stages.plan import StagePlans, interleaved_lead
from forerun.simulator.stages.rows import stage_rows
from forerun.spaces.strategies import Context, Schedule, Strategy, chunks_of_stage, stage_layers, table_of

REPLICA_BYTES = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "buffer_bytes")


def memory_by_stage(context: Context, strategy: Strategy) -> tuple[Mapping[str, float], ...]:
    """Return the bytes of every device-stage by ``MEMORY_PARTS``, of a strategy that must be legal.

    The fullest stage has what ``score`` says of the strategy, also where runs calibrated memory.

    Raises:
        RequestError: as for ``score``.
    """
    moving, replicas = _alike(context, strategy) if strategy.stage_choices is None else _staged(context, strategy)
    places = np.arange(strategy.pp)
    parts: Mapping[str, Floats] = total_memory(context, moving, places, replicas, places).parts
    if context.correction is not None:
        held = context.correction.memory(context, table_of([strategy] * strategy.pp), parts)
        parts = parts if held is None else held.parts
    return tuple({part: float(parts[part][stage]) for part in MEMORY_PARTS} for stage in range(strategy.pp))


def _alike(context: Context, strategy: Strategy) -> tuple[StageMemory, ReplicaCosts]:
    """Return what the stages of a flat strategy hold, one column for each.

    Stages stand where the core has strategies: each column is one stage and is its own fullest.
    """
    table = table_of([strategy])
    held = chunk_blocks(context, table, strategy)
    homes = [chunks_of_stage(strategy.pp, strategy.vpp, strategy.schedule, stage) for stage in range(strategy.pp)]
    blocks = np.stack([held[:, list(chunks)].sum(axis=1) for chunks in homes], axis=1)
    count = strategy.pp
    same: NDArray[np.intp] = np.zeros(count, dtype=np.intp)
    microbatches = context.workload.global_batch // (strategy.dp * strategy.mbs)
    schedule, pp, vpp, whole = (
        np.full(count, float(value)) for value in (int(strategy.schedule), count, strategy.vpp, microbatches)
    )
    moving = stage_memory(
        context,
        shard_of(context, table, np.zeros(1, dtype=np.intp)),
        same,
        blocks[:, None, :],
        np.arange(count, dtype=np.float64)[None, :],
        schedule,
        pp,
        vpp,
        whole,
        _leads(context, strategy)[None, :],
    )
    return moving, _replica_costs(context, strategy, blocks)


def _staged(context: Context, strategy: Strategy) -> tuple[StageMemory, ReplicaCosts]:
    """Return what stages that differ hold, one column for each."""
    rows = stage_rows(context, table_of([strategy]))
    passes = stage_passes(context, rows)
    costs = stage_replicas(context, rows, passes)
    own = passes.memory
    moving = StageMemory(
        kept=own.kept.T, working=own.working.T, logits=own.logits.T, idle=own.idle.T, stage=own.stage.T
    )
    # Only memory is looked at, which is [stages, 1] there; times are of the one strategy.
    turned = {name: getattr(costs, name).T for name in REPLICA_BYTES}
    return moving, dataclasses.replace(costs, **turned)


def _leads(context: Context, strategy: Strategy) -> Floats:
    """Return what every stage keeps at its peak over equal virtual stages, shape [pp]."""
    if strategy.schedule != Schedule.INTERLEAVED:
        return np.ones(strategy.pp)
    table = table_of([strategy])
    layers = stage_layers(
        context.model.layer_count,
        strategy.pp,
        strategy.vpp,
        int(table.column("split")[0]),
        table.custom_splits,
        context.head_layers,
    )
    pp = strategy.pp
    return np.array([interleaved_lead(layers[stage::pp], pp, stage) for stage in range(pp)])


def _replica_costs(context: Context, strategy: Strategy, blocks: Floats) -> ReplicaCosts:
    """Return what the replicas of every stage hold, one column for each."""
    count = blocks.shape[1]
    ones = np.ones((1, count))
    plans = StagePlans(multiplicity=ones, first=ones * 0.0, stage=ones * 0.0, lead=ones, blocks=blocks[:, None, :])
    values = {axis: np.full(count, float(getattr(strategy, axis))) for axis in REPLICA_DEGREES}
    parameters = stage_parameters(context, plans, values["tp"], values["ep"], values["etp"])
    return replica_costs(context, Replicas(parameters=parameters, **values))
