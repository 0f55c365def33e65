"""The vectorised core: seconds and bytes of every candidate of a table.

A candidate's cost is assembled from sub-results that depend on few axes. Each is computed once per distinct key and
gathered: blocks (tp, cp, ep, etp, mbs, sp, recompute), stage plans (pp, vpp, schedule, split), replicas (all but the
microbatch), pipelines (all but zero and placement), transfers. No Python object is created per candidate.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.core.assembly import step_scores
from forerun.simulator.core.pipelines import activations_of, pipelines_of
from forerun.simulator.core.staged import staged_score
from forerun.simulator.core.values import Candidates
from forerun.simulator.layer.shard import layer_axes
from forerun.simulator.memory.peak import total_memory
from forerun.simulator.pipeline.p2p import P2P_AXES, p2p_time_s
from forerun.simulator.replicas.reduction import (
    REPLICA_AXES,
    REPLICA_DEGREES,
    Replicas,
    replica_costs,
    replica_memory,
)
from forerun.simulator.replicas.slices import share_port
from forerun.simulator.score_table import Floats, ScoreTable, joined
from forerun.simulator.stages.parameters import stage_parameters, table_share
from forerun.simulator.stages.plan import PLAN_AXES, StagePlans, stage_plans
from forerun.spaces.schedules.catalogue import rounds_of
from forerun.spaces.strategies import Context, Placement, StrategyTable
from forerun.spaces.strategies.racks import SPANS, domains, rack_devices, with_domain
from forerun.spaces.strategies.software import running

Group = tuple[int, NDArray[np.intp]]
"""A key and the rows of a table that have it."""
_STAGE_AXES = ("gpus", "pp", "tp", "cp", "ep", "etp", "vpp", "schedule", "split")
PIPELINE_AXES = (*_STAGE_AXES, "mbs", "sp", "recompute", "recompute_layers")
"""Axes of the pipelined part of a step, in addition to those of its layers."""


def score(context: Context, table: StrategyTable) -> ScoreTable:
    """Return time and memory of every candidate of ``table``, legal or not, row by row.

    Raises
    ------
    RequestError
        The device lacks the workload's precision, or a cost rule does not know an operator or link.
    """
    if not len(table) or not rack_devices(context.cluster):
        return _scores(context, table)
    domain = domains(context.cluster, {axis: table.column(axis) for axis in SPANS})
    groups = [(int(size), np.flatnonzero(domain == size)) for size in np.unique(domain)]
    return _by_group(table, groups, lambda size, part: _scores(with_domain(context, size), part))


def _scores(context: Context, table: StrategyTable) -> ScoreTable:
    """Return the scores of a table whose rows place their groups alike in racks."""
    scores = _by_group(table, _by_software(table), lambda on, part: _same_software(running(context, on), part))
    return corrected(context, table, scores, scores.time_s)


def _by_group(
    table: StrategyTable, groups: Sequence[Group], score_group: Callable[[int, StrategyTable], ScoreTable]
) -> ScoreTable:
    """Return the scores of a table, computed for each group of rows by its key."""
    if len(groups) == 1:
        return score_group(groups[0][0], table)
    parts = [score_group(key, table.take(rows)) for key, rows in groups]
    return joined(parts, np.argsort(np.concatenate([rows for _, rows in groups]), kind="stable"))


def peaks(context: Context, table: StrategyTable) -> Floats:
    """Return the peak memory [N] of every candidate of a table with equal stages, in bytes.

    The peak equals the result of ``score`` without correction by measured runs.
    """
    peak = np.empty(len(table))
    for on, rows in _by_software(table):
        peak[rows] = _peaks(running(context, on), table.take(rows))
    return peak


def fits(context: Context, table: StrategyTable) -> NDArray[np.bool_]:
    """Check whether each candidate of ``table`` fits in memory, [N], as in ``score``."""
    if table.stage_choices or context.correction is not None:
        return score(context, table).fits
    return np.asarray(peaks(context, table) <= context.memory_limit_bytes)


def _peaks(context: Context, table: StrategyTable) -> Floats:
    """Return the peak memory of a table whose rows turn the same switches on."""
    plan_keys = table.distinct(*PLAN_AXES)
    plans = stage_plans(context, table, plan_keys.rows, timed=False)
    keys = table.distinct(*dict.fromkeys((*PIPELINE_AXES, *layer_axes(context))))
    activations = activations_of(context, table, plans, plan_keys.inverse[keys.rows], keys.rows)
    replica_keys = table.distinct(*REPLICA_AXES)
    replicas = _replicas(context, table, plans, plan_keys.inverse[replica_keys.rows], replica_keys.rows)
    states = replica_memory(context, replicas)
    return total_memory(context, activations, keys.inverse, states, replica_keys.inverse).peak_bytes


def _by_software(table: StrategyTable) -> list[Group]:
    """Return the sets of switches that rows of a table turn on, with their rows."""
    software, own = table.choices["software"], table.codes["software"]
    if not len(table) or not software.any():
        return [(0, np.arange(len(table)))]
    groups = ((int(on), np.flatnonzero(own == code)) for code, on in enumerate(software))
    return [(on, rows) for on, rows in groups if len(rows)]


def _same_software(context: Context, table: StrategyTable) -> ScoreTable:
    """Return the scores of a table whose rows turn the same switches on, which ``context`` has."""
    if not table.stage_choices:
        return _flat(context, table)
    staged = np.array([choices is not None for choices in table.stage_choices])
    groups = [(kind, rows) for kind in (True, False) if len(rows := np.flatnonzero(staged == kind))]
    return _by_group(table, groups, lambda kind, part: (staged_score if kind else _flat)(context, part))


def corrected(context: Context, table: StrategyTable, scores: ScoreTable, time_s: Mapping[str, Floats]) -> ScoreTable:
    """Return scores corrected by measured runs, where the context was calibrated.

    ``time_s``: parts of the step by this level, which measure the similarity of strategies.
    """
    known = context.correction
    if known is None:
        return scores
    slowed = scores.slowed(known.factor(context, table, time_s))
    memory = known.memory(context, table, scores.memory_bytes)
    return slowed if memory is None else slowed.holding(memory)


def _flat(context: Context, table: StrategyTable) -> ScoreTable:
    """Return the scores of a table with equal stages."""
    plan_keys = table.distinct(*PLAN_AXES)
    plans = stage_plans(context, table, plan_keys.rows)
    keys = table.distinct(*dict.fromkeys((*PIPELINE_AXES, *layer_axes(context))))
    pipelines = pipelines_of(context, table, plans, plan_keys.inverse[keys.rows], keys.rows)
    replica_keys = table.distinct(*REPLICA_AXES)
    replicas = _replicas(context, table, plans, plan_keys.inverse[replica_keys.rows], replica_keys.rows)
    costs, tables = replica_costs(context, replicas), table_share(context, replicas.parameters, replicas.tp)
    p2p_keys = table.distinct(*P2P_AXES)
    borders = table.take(p2p_keys.rows)
    candidates = Candidates(
        key=keys.inverse,
        replica=replica_keys.inverse,
        zero=table.column("zero"),
        p2p_s=p2p_time_s(context, borders)[p2p_keys.inverse],
        shared_port=_shared_port(context, borders)[p2p_keys.inverse],
        table_share=tables[replica_keys.inverse],
    )
    return step_scores(context, pipelines, candidates, costs)


def _shared_port(context: Context, table: StrategyTable) -> NDArray[np.bool_]:
    """Check whether transfers between stages and replica traffic have the same port, [N]."""
    tp, cp, dp, pp = (table.column(axis).astype(np.float64) for axis in ("tp", "cp", "dp", "pp"))
    near = table.column("placement") == Placement.TP_CP_EP_PP_DP
    return share_port(context.cluster, tp=tp, cp=cp, dp=dp, pp=pp, near=near)


def _floats(table: StrategyTable, rows: NDArray[np.intp], *axes: str) -> list[Floats]:
    """Return columns of some rows as floats."""
    return [table.choices[axis][table.codes[axis][rows]].astype(np.float64) for axis in axes]


def _replicas(
    context: Context, table: StrategyTable, plans: StagePlans, plan: NDArray[np.intp], rows: NDArray[np.intp]
) -> Replicas:
    """Return the degrees and parameters of D strategies."""
    degrees = dict(zip(REPLICA_DEGREES, _floats(table, rows, *REPLICA_DEGREES), strict=True))
    parameters = stage_parameters(context, plans.blocks[:, :, plan], degrees["tp"], degrees["ep"], degrees["etp"])
    schedule, vpp = _floats(table, rows, "schedule", "vpp")
    return Replicas(parameters=parameters, rounds=rounds_of(schedule, vpp), virtual=vpp, **degrees)
