"""Costs of one stage under many options, the input of dynamic programming over stages."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.core.staged_passes import stage_passes
from forerun.simulator.layer.kinds import kind_of_entry, layer_kinds
from forerun.simulator.layer.known_times import known_block_times
from forerun.simulator.layer.shard import layer_axes, shard_of
from forerun.simulator.layer.times import host_passes_s
from forerun.simulator.memory.peak import total_memory
from forerun.simulator.pipeline.closed_forms import exposed_p2p_count
from forerun.simulator.pipeline.p2p import P2P_AXES, p2p_time_s
from forerun.simulator.replicas.reduction import (
    REPLICA_DEGREES,
    ReplicaCosts,
    Replicas,
    reduces_each,
    replica_costs,
)
from forerun.simulator.score_table import Floats
from forerun.simulator.stages.parameters import stage_parameters
from forerun.simulator.stages.rows import Ints, rows_of_stages
from forerun.spaces.strategies import Context, Strategy, StrategyTable, in_second_half
from forerun.spaces.strategies.software import running

STAGE_AXES = ("tp", "dp", "pp", "cp", "ep", "etp", "mbs", "zero", "shard", "schedule", "placement", "sp")
"""Axes of a strategy in a stage's costs, in addition to its layers and recompute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOptions:
    """K options of a stage (layers, recompute, shares on the host), shape K each."""

    number: Ints
    """Number of the stage."""
    start: Ints
    """Its first layer in the model."""
    end: Ints
    """The layer after its last one."""
    kind: Ints
    """Number of a ``Recompute``."""
    some: Ints
    """Number of recomputed layers; negative: all."""
    hosted: Floats | None = None
    """Shares of its optimizer states and activations on the host, [K, 2]; None: the software's setting."""

    def __len__(self) -> int:
        return len(self.number)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> "StageOptions":
        """Return some of the options."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return StageOptions(**{name: value[rows] for name, value in values.items() if value is not None})

    def beside(self, others: "StageOptions") -> "StageOptions":
        """Return these options followed by others; both or neither must have shares on the host."""
        pairs = {each.name: (getattr(self, each.name), getattr(others, each.name)) for each in fields(self)}
        return StageOptions(**{name: np.concatenate(both) for name, both in pairs.items() if both[0] is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionCosts:
    """Costs of K options of a stage, shape K each."""

    time_s: Floats
    """Seconds of one microbatch, forward and backward."""
    reduce_s: Floats
    """Reduction of gradients, once per step."""
    gather_s: Floats
    """Gather of parameters, once per step."""
    optimizer_s: Floats
    """Update and copies of parameters and gradients, per step."""
    tied_s: Floats
    """Exchange of a tied token table between first and last stage, once per step."""
    peak_bytes: Floats
    optimizer_bytes: Floats
    """Optimizer states in the peak."""


def option_costs(context: Context, strategy: Strategy, options: StageOptions) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the seconds of one microbatch, forward and backward, and whether the stage fits into memory; shape K.

    Seconds include exposed replica traffic. ``strategy``: see ``class_costs``.
    """
    costs = class_costs(context, strategy, options)
    return costs.time_s, costs.peak_bytes <= context.memory_limit_bytes


def class_costs(context: Context, strategy: Strategy, options: StageOptions) -> OptionCosts:
    """Return the costs of options of a stage; ``time_s`` includes its share of exposed replica traffic.

    ``strategy`` has all settings except layers, recompute and shares on the host.
    """
    context = running(context, strategy.software)
    second = np.array([in_second_half(stage, strategy.pp) for stage in range(strategy.pp)])[options.number]
    halves = [strategy.half(False), strategy.half(True)]
    degrees = {
        axis: np.where(second, float(getattr(halves[1], axis)), float(getattr(halves[0], axis))) for axis in STAGE_AXES
    }
    costs = stage_costs(context, options, degrees, second)
    each_s, once_s = alone_s(context, costs.time_s, costs.reduce_s, costs.gather_s, degrees["zero"], degrees["pp"])
    microbatches = context.workload.global_batch / (degrees["dp"] * degrees["mbs"])
    return replace(costs, time_s=costs.time_s + each_s + (once_s + costs.tied_s) / microbatches)


def alone_s(
    context: Context, time_s: Floats, reduce_s: Floats, gather_s: Floats, zero: Floats, pp: Floats
) -> tuple[Floats, Floats]:
    """Return the exposed seconds of replica traffic: in every microbatch, and once per step.

    ``time_s``: one microbatch, a third of it forward. Parameters are gathered during the preceding forward pass (and
    again during the backward pass); gradients are reduced during the backward pass that completes them.
    """
    profile, forward_s, backward_s = context.framework, time_s / 3, 2 * time_s / 3
    each = reduces_each(profile, zero, pp)
    gather_each_s, reduce_each_s = np.where(zero >= 3, gather_s, 0.0), np.where(each, reduce_s, 0.0)
    before_s = np.maximum(gather_each_s - profile.overlap_parameters * forward_s, 0.0)
    behind_s = np.maximum(gather_each_s + reduce_each_s - profile.overlap_gradients * backward_s, 0.0)
    once_s = [
        traffic_s - np.minimum(share * traffic_s, pass_s)
        for traffic_s, share, pass_s in (
            (gather_s - gather_each_s, profile.overlap_parameters, forward_s),
            (reduce_s - reduce_each_s, profile.overlap_gradients, backward_s),
        )
    ]
    return np.asarray(before_s + behind_s), np.asarray(once_s[0] + once_s[1])


def stage_costs(
    context: Context, options: StageOptions, degrees: Mapping[str, Floats], second: NDArray[np.bool_] | None = None
) -> OptionCosts:
    """Return the costs of options of a stage with their own ``degrees`` (``STAGE_AXES``, shape K each).

    ``second``: whether the stage is in a half of the pipeline with another tp.
    """
    rows = rows_of_stages(
        context,
        start=options.start[None, :],
        end=options.end[None, :],
        some=options.some[None, :],
        kind=options.kind[None, :],
        number=options.number[None, :],
        exists=np.ones((1, len(options))),
        second=np.zeros((1, len(options)), dtype=bool) if second is None else second[None, :],
        degrees={axis: degrees[axis][None, :] for axis in STAGE_AXES},
        hosted=None if options.hosted is None else options.hosted.T[:, None, :],
    )
    passes = stage_passes(context, rows)
    alone = {axis: degrees[axis] for axis in REPLICA_DEGREES}
    parameters = stage_parameters(context, rows.blocks, rows.tp, rows.ep, rows.etp)
    costs = replica_costs(context, Replicas(parameters=parameters, on_host=rows.optimizer_away, **alone))
    columns = np.arange(len(options))
    return OptionCosts(
        time_s=(passes.forward_s + passes.backward_s)[0],
        reduce_s=costs.reduce_s,
        gather_s=costs.gather_s,
        optimizer_s=costs.optimizer_s + rows.microbatches[0] * costs.copy_s,
        tied_s=costs.tied_s,
        peak_bytes=total_memory(context, passes.memory, columns, costs, columns).peak_bytes,
        optimizer_bytes=costs.optimizer_bytes[0],
    )


def least_pace_s(context: Context, table: StrategyTable, *, hosted: bool = False) -> Floats:
    """Return a lower bound of the slowest stage's seconds of one microbatch, as in ``option_costs``, shape N.

    The bound divides the model into ``pp`` equal parts. Infinite where parameters, gradients and optimizer states alone
    exceed the device's memory; ``hosted``: without optimizer states, which may be on the host.
    """
    software, paces_s = table.column("software"), np.zeros(len(table))
    for switches in np.unique(software):
        rows = np.flatnonzero(software == switches)
        paces_s[rows] = _least_pace_s(running(context, int(switches)), table.take(rows), hosted)
    return paces_s


def _least_pace_s(context: Context, table: StrategyTable, hosted: bool) -> Floats:
    model = _whole_model(context, table)
    pp = table.column("pp").astype(np.float64)
    forward_s = np.maximum(model.forward_s.sum(axis=0), model.host_s[0])
    backward_s = np.maximum(model.backward_s.sum(axis=0), model.host_s[1])
    costs = _replicas_of(context, table, model.blocks / pp)
    time_s, zero = (forward_s + backward_s) / pp, table.column("zero").astype(np.float64)
    each_s, once_s = alone_s(context, time_s, costs.reduce_s, costs.gather_s, zero, pp)
    microbatches = context.workload.global_batch / (table.column("dp") * table.column("mbs"))
    fits = _states_fit(context, costs, hosted=hosted)
    return np.where(fits, time_s + each_s + once_s / microbatches, np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastParts:
    """Lower bounds of time and memory of all layers of a model on one kind of device, for N candidates."""

    passes_s: Floats
    """Seconds of one microbatch, by block (kinds of layers, embedding, head), [B, N]."""
    host_s: Floats
    """Launches of a microbatch, [N]."""
    once_s: Floats
    """Exposed replica traffic, and the optimizer, once per step, [N]."""
    fits: NDArray[np.bool_]
    """Whether equal parts of parameters, gradients and optimizer states fit into memory, [N]."""


def least_parts(context: Context, table: StrategyTable) -> LeastParts:
    """Return the costs of all layers as one stage, of which any stage has at least its share."""
    software, parts = table.column("software"), dict[str, Floats]()
    for switches in np.unique(software):
        rows = np.flatnonzero(software == switches)
        own = _least_parts(running(context, int(switches)), table.take(rows))
        for name, values in own.items():
            parts.setdefault(name, np.zeros((*values.shape[:-1], len(table))))[..., rows] = values
    return LeastParts(**{**parts, "fits": parts["fits"] > 0})  # type: ignore[arg-type]  # one mask among floats


def _least_parts(context: Context, table: StrategyTable) -> dict[str, Floats]:
    model, profile = _whole_model(context, table), context.framework
    parts = _replicas_of(context, table, model.blocks / table.column("pp"))
    traffic = _replicas_of(context, table, model.blocks * np.ones(len(table)))
    # Replica traffic that the software can never hide, with one reduction and one gather per step.
    exposed_s = (1 - profile.overlap_gradients) * traffic.reduce_s + (1 - profile.overlap_parameters) * traffic.gather_s
    return {
        "passes_s": model.forward_s + model.backward_s + model.unpaired_s,
        "host_s": model.host_s[0] + model.host_s[1],
        "once_s": exposed_s + traffic.optimizer_s + traffic.copy_s,
        "fits": _states_fit(context, parts, hosted=False).astype(np.float64),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _WholeModel:
    """One microbatch through all B blocks of a model, for N candidates."""

    blocks: Floats
    """Number of each block, [B, 1]."""
    forward_s: Floats
    """Seconds, [B, N], like the following ones."""
    backward_s: Floats
    unpaired_s: Floats
    """Additional seconds of passes without a paired pass, 0 or negative."""
    host_s: tuple[Floats, Floats]
    """Launches of the forward and of the backward pass, [N] each."""


def _whole_model(context: Context, table: StrategyTable) -> _WholeModel:
    model = context.model
    counts = np.bincount(kind_of_entry(model), [layer.count for layer in model.layers], len(layer_kinds(model)))
    counts[kind_of_entry(model)[-1]] += model.mtp_layers
    keys = table.distinct(*layer_axes(context))
    times, key = known_block_times(context, shard_of(context, table, keys.rows)), keys.inverse
    blocks = np.concatenate((counts, [1.0, 1.0]))[:, None]
    pp, tp = table.column("pp").astype(np.float64), table.column("tp").astype(np.float64)
    layers = np.repeat(counts[:, None].astype(np.float64), len(table), axis=1)
    unpaired_s = np.zeros_like(times.forward_s) if times.alone_s is None else np.minimum(sum(times.alone_s), 0.0)
    return _WholeModel(
        blocks=blocks,
        forward_s=(blocks * times.forward_s)[:, key],
        backward_s=(blocks * times.backward_s)[:, key],
        unpaired_s=(blocks * unpaired_s)[:, key],
        host_s=host_passes_s(context, layers, table.column("recompute"), tp, pp),
    )


def _states_fit(context: Context, costs: ReplicaCosts, *, hosted: bool) -> NDArray[np.bool_]:
    """Check that parameters and gradients, with optimizer states unless ``hosted``, fit into memory, [N]."""
    state_bytes = costs.parameter_bytes + costs.gradient_bytes + (0.0 if hosted else 1.0) * costs.optimizer_bytes
    return np.asarray(state_bytes[0] <= context.memory_limit_bytes - context.framework.context_bytes)


def least_p2p_s(context: Context, table: StrategyTable) -> Floats:
    """Return the exposed seconds of transfers between stages, shape N."""
    keys = table.distinct(*P2P_AXES)
    columns = ("schedule", "pp", "dp", "mbs")
    schedule, pp, dp, mbs = (table.column(axis).astype(np.float64) for axis in columns)
    microbatches = context.workload.global_batch / (dp * mbs)
    overlap = context.framework.overlap_pipeline
    count = exposed_p2p_count(schedule, pp, np.ones_like(pp), microbatches, overlap=overlap)
    return count * p2p_time_s(context, table.take(keys.rows))[keys.inverse]


def _replicas_of(context: Context, table: StrategyTable, blocks: Floats) -> ReplicaCosts:
    """Return the replica costs of a stage with ``blocks`` [B, N]."""
    degrees = {axis: table.column(axis).astype(np.float64) for axis in REPLICA_DEGREES}
    parameters = stage_parameters(context, blocks[:, None, :], degrees["tp"], degrees["ep"], degrees["etp"])
    return replica_costs(context, Replicas(parameters=parameters, **degrees))
