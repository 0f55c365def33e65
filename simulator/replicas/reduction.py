"""Costs of replicas once per step, or per microbatch with sharded gradients or parameters.

The costs are gradient reduction, parameter gather, optimizer, and the memory of parameters, gradients and optimizer
states.

Stages after ZeRO (arXiv 1910.02054): 1 shards optimizer states, 2 also gradients, 3 also parameters. Where only a part
of the replicas shares one set of slices (hybrid sharding: HSDP, instances of a distributed optimizer), gradients are
reduce-scattered within it and each slice is all-reduced over its copies; parameters are gathered within it.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.costs import adam_time_s, block_stride, collective_time_s, memory_bound_time_s
from forerun.simulator.costs.host import states_on_host
from forerun.simulator.layer.eight_bit import renewed_bytes
from forerun.simulator.layer.shard import BUFFER_BYTES, accumulates_separately, activation_bytes, parameter_bytes
from forerun.simulator.replicas.buffers import bucket_bytes, buffers, gradient_buckets, reduced_bytes, stays_whole
from forerun.simulator.score_table import Floats
from forerun.simulator.stages.parameters import StageParameters
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.strategies import Context, Placement

REPLICA_AXES = ("gpus", "pp", "tp", "cp", "ep", "etp", "vpp", "schedule", "split", "zero", "shard", "placement", "dp")
"""Axes of the cost of replicas."""

REPLICA_DEGREES = ("dp", "tp", "pp", "cp", "ep", "etp", "zero", "shard", "placement")
"""Degrees in ``Replicas``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMemory:
    """Memory of states and buffers of D strategies, bytes [R, D]."""

    parameter_bytes: Floats
    gradient_bytes: Floats
    dropped_bytes: Floats
    """Gradients that exist only from a step's first backward pass to its update."""
    optimizer_bytes: Floats
    buffer_bytes: Floats
    """Buckets, gathered parameters and scratch memory at any time."""
    backward_bytes: Floats
    """Further buffers during a layer's backward pass."""
    end_bytes: Floats
    """Further buffers at the end of a backward pass, after the layers: gradients of the ends."""
    whole_bytes: Floats
    """Further gathered parameters at this time, which stay until the next forward pass."""
    gather_stream_bytes: Floats
    """Peak allocation of the gather stream, which the allocator keeps for this stream."""
    reduce_stream_bytes: Floats
    """Peak allocation of the reduction stream, without sharded gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCosts(ReplicaMemory):
    """Once-per-step costs of D strategies, seconds shape D."""

    reduce_s: Floats
    """Seconds of one reduction of all gradients of the device's stage."""
    gather_s: Floats
    """Seconds of one gather of all its parameters."""
    tied_s: Floats
    """Seconds of the exchange that keeps first and last copy of a tied table equal."""
    optimizer_s: Floats
    copy_s: Floats
    """Seconds of copies of units per microbatch: out of the gathered and into the reduction buffer."""
    buckets: Floats
    """Collectives of one reduction, at least 1."""
    largest: Floats
    """Number of the run of stages whose traffic this is, the largest."""
    first: Floats
    """Traffic of the first run of stages in relation to it (0 to 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Degrees of D strategies as floats, shape D each."""

    dp: Floats
    tp: Floats
    pp: Floats
    cp: Floats
    ep: Floats
    etp: Floats
    zero: Floats
    shard: Floats
    placement: Floats
    """Number of a ``Placement``."""
    parameters: StageParameters
    """Parameters of their stages, [R, D]."""
    rounds: Floats | float = 1.0
    """Virtual stages of a device that an interleaved pipeline runs in rounds, shape D."""
    virtual: Floats | float = 1.0
    """Virtual stages of a device, shape D."""
    on_host: Floats | None = None
    """Share (0 to 1) of the optimizer states on the host, [R, D]; None: the software's setting."""

    @property
    def copies(self) -> Floats:
        """Sets of slices in all replicas, shape D: 1.0 where all share one. Experts have the same number."""
        replicas = self.dp * self.cp
        return np.asarray(replicas / np.where(self.shard > 0, self.shard, replicas))

    @property
    def shards(self) -> Floats:
        """Replicas that share one set of slices, shape D."""
        return self.dp * self.cp / self.copies

    def held(self, cut: NDArray[np.bool_], dense: Floats, expert: Floats) -> Floats:
        """Return the parameters of a stage in a device's own slice, where they are ``cut`` among replicas, [R, D]."""
        # Each part of an expert is 1 / (ep * etp) times as often as dense parameters on the shards * tp devices that
        # shard a stage's states: this many share it.
        expert_shards = self.shards * self.tp / (self.ep * self.etp)
        return np.asarray(dense / np.where(cut, self.shards, 1.0) + expert / np.where(cut, expert_shards, 1.0))


def replica_costs(context: Context, replicas: Replicas) -> ReplicaCosts:
    """Return the once-per-step costs of D strategies."""
    counts = replicas.parameters
    trained = counts.trained_dense, counts.trained_expert
    profile, width = context.framework, activation_bytes(context.workload.precision)
    exchanged, largest = _exchanged(replicas, *_with_gradients(profile, replicas))
    at = largest, np.arange(len(largest))
    dense, expert = (each[at] for each in _with_gradients(profile, replicas))
    reduced = _reduce_s(context, replicas, "gradients", dense, expert)
    # Sharded parameters are all gathered, frozen or not; otherwise only those changed by an update.
    is_zero3 = replicas.zero == 3
    dense, expert = (np.where(is_zero3, *each)[at] for each in zip((counts.dense, counts.expert), trained, strict=True))
    # In units of half precision: parameters of layers may be sent in fewer bits.
    travels = parameter_bytes(context)[1] / width
    outside = counts.outside.max(axis=0) * (1 - travels)
    gathered = _reduce_s(context, replicas, "parameters", dense * travels + outside, expert * travels)
    states = _optimizer_states(context, replicas)
    passed = profile.step_bytes * (trained[0] + trained[1]).max(axis=0)
    optimizer_s = _optimizer_s(context, states.on_device.max(axis=0), states.own.max(axis=0), passed)
    optimizer_s = np.maximum(optimizer_s, states.host_s)
    if profile.optimizer == "muon":
        # Slices of matrices are gathered, and one replica orthogonalises each.
        matrices = counts.muon_dense.max(axis=0), counts.muon_expert.max(axis=0)
        optimizer_s = optimizer_s + _reduce_s(context, replicas, "parameters", *matrices)
        orthogonal_s = replicas.held(replicas.zero >= 1, counts.muon_dense_s, counts.muon_expert_s)
        optimizer_s = optimizer_s + orthogonal_s.max(axis=0)
    if renewed := renewed_bytes(context):
        weights = (counts.dense - counts.outside + counts.expert).max(axis=0)
        optimizer_s = optimizer_s + memory_bound_time_s(context.cluster.device, renewed * weights)
    memory = _memory(context, replicas, states)
    most = exchanged[at]
    return ReplicaCosts(
        reduce_s=reduced,
        gather_s=gathered,
        tied_s=_tied_s(context, replicas),
        optimizer_s=optimizer_s,
        copy_s=_copy_s(context, replicas),
        buckets=_collectives(
            context,
            replicas,
            gradient_buckets(context, (counts.dense + counts.expert).max(axis=0), replicas.dp * replicas.cp),
        ),
        largest=largest.astype(np.float64),
        first=np.divide(exchanged[0], most, out=np.ones_like(most), where=most > 0),
        **{entry.name: getattr(memory, entry.name) for entry in fields(memory)},
    )


def _exchanged(replicas: Replicas, dense: Floats, expert: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Return the parameters that stages exchange, of ``dense`` and ``expert`` ones [R, D], and the run with most."""
    ranks = replicas.dp * replicas.cp
    exchanged = dense * (ranks > 1) + expert * (ranks * replicas.tp > replicas.ep * replicas.etp)
    return exchanged, exchanged.argmax(axis=0)


def replica_memory(context: Context, replicas: Replicas) -> ReplicaMemory:
    """Return the memory of states and buffers of D strategies."""
    return _memory(context, replicas, _optimizer_states(context, replicas))


def _memory(context: Context, replicas: Replicas, states: "_OptimizerStates") -> ReplicaMemory:
    """Compute the memory of states and buffers of D strategies, given their optimizer states."""
    counts, profile = replicas.parameters, context.framework
    precision, width = context.workload.precision, activation_bytes(context.workload.precision)
    graded = _with_gradients(profile, replicas)
    separate_fp32 = accumulates_separately(context, replicas.zero)
    gradient = profile.held_gradient_bytes(precision) + np.where(separate_fp32, BUFFER_BYTES, 0.0)
    optimizer_bytes = states.left_bytes
    if profile.optimizer == "muon":  # one momentum instead of two moments
        muon = replicas.held(replicas.zero >= 1, counts.muon_dense, counts.muon_expert)
        optimizer_bytes = optimizer_bytes - profile.optimizer_bytes / 2 * muon
    each = reduces_each(profile, replicas.zero, replicas.pp)
    gradient = np.where(each, np.maximum(gradient, _unit_gradient_bytes(context)), gradient)
    gradients = replicas.held(each, *graded)
    if profile.gradient_sync == "round":
        # Gradients of the current virtual stage are accumulated in full, in addition to the slices of all.
        slices = replicas.held(replicas.zero >= 2, *graded)
        in_rounds = (replicas.zero >= 2) & (replicas.rounds > 1)
        gradients = np.where(in_rounds, slices + gradients / replicas.rounds, gradients)
    # Parameters in half precision; those of layers may be stored in fewer bits.
    stored = _stored(counts, parameter_bytes(context)[0], width, _sliced_bytes(context, replicas))
    return ReplicaMemory(
        parameter_bytes=replicas.held(replicas.zero == 3, *stored),
        gradient_bytes=gradients * gradient,
        dropped_bytes=np.where(replicas.zero >= 2, bool(profile.unit_parameters) * gradients * gradient, 0.0),
        optimizer_bytes=optimizer_bytes,
        **buffers(
            context,
            counts,
            sum(graded, np.zeros_like(counts.dense)),
            zero=replicas.zero,
            pp=replicas.pp,
            virtual=replicas.virtual,
            ranks=replicas.dp * replicas.cp,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _OptimizerStates:
    """Optimizer states of D strategies with two moments for every parameter, [R, D]."""

    own: Floats
    """Parameters that a device updates: all of its own, or its slice from ZeRO stage 1 on."""
    on_device: Floats
    """Updated parameters whose states are on the device."""
    left_bytes: Floats
    """States on the device."""
    host_s: Floats
    """Seconds of the update on the host, shape D."""


def _optimizer_states(context: Context, replicas: Replicas) -> _OptimizerStates:
    """Divide the optimizer states of strategies between device and host."""
    counts, profile = replicas.parameters, context.framework
    trained = replicas.held(replicas.zero >= 1, counts.trained_dense, counts.trained_expert)
    master = np.where(_sliced_bytes(context, replicas) > 0, 0.0, _master_bytes(context))
    whole_bytes = np.asarray(trained * (profile.optimizer_bytes + master))
    on_host = np.asarray(profile.optimizer_on_host) if replicas.on_host is None else replicas.on_host
    if not on_host.any():
        return _OptimizerStates(
            own=trained, on_device=trained, left_bytes=whole_bytes, host_s=np.zeros_like(replicas.dp)
        )
    left_bytes, update_s = states_on_host(context.cluster, whole_bytes, on_host, overlap=profile.overlap_host_update)
    left = np.divide(left_bytes, whole_bytes, out=np.ones_like(trained), where=whole_bytes > 0)
    return _OptimizerStates(own=trained, on_device=trained * left, left_bytes=left_bytes, host_s=update_s.max(axis=0))


def _master_bytes(context: Context) -> float:
    """Return the bytes of a parameter's fp32 copy; 0 where parameters are in full precision."""
    half = activation_bytes(context.workload.precision) == 2.0
    return context.framework.master_bytes if half else 0.0


def _sliced_bytes(context: Context, replicas: Replicas) -> Floats:
    """Return the bytes of a parameter's fp32 copy, [D], where units are gathered from it; otherwise 0."""
    in_units = (replicas.zero == 3) & bool(context.framework.unit_parameters)
    return np.where(in_units, _master_bytes(context), 0.0)


def _stored(counts: StageParameters, inside: float, outside: float, sliced: Floats) -> tuple[Floats, Floats]:
    """Compute the bytes of (dense, expert) parameters, [R, D].

    ``inside``, ``outside``: bytes of each parameter inside and outside layers; ``sliced`` [D]: bytes of each trained
    parameter in place of these, unless 0.
    """
    dense = counts.dense * inside + counts.outside * (outside - inside)
    expert = counts.expert * inside
    if not sliced.any():
        return dense, expert
    return (
        np.where(sliced, counts.trained_dense * sliced + counts.frozen_dense * outside, dense),
        np.where(sliced, counts.trained_expert * sliced + counts.frozen_expert * inside, expert),
    )


def reduces_each(
    profile: FrameworkProfile, zero: Floats | NDArray[np.int64], pp: Floats | NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Check whether every device keeps only its slice of gradients, which are reduced with every microbatch.

    Otherwise they are reduced once per step, or once per round of an interleaved pipeline.
    """
    in_pipelines = profile.gradient_sync in ("pipeline", "round")
    once = (profile.gradient_sync == "step") | (in_pipelines & (pp > 1))
    return np.asarray((zero >= 2) & ~np.asarray(once))


def _reduce_s(context: Context, replicas: Replicas, what: str, dense: Floats, expert: Floats) -> Floats:
    """Seconds to reduce all gradients, or gather all parameters, of a stage over its replicas, by bucket.

    Parameters are gathered tensor by tensor where the framework does so, and layer by layer where they are sharded.
    """
    wire = activation_bytes(context.workload.precision) if what == "parameters" else reduced_bytes(context)
    ranks, total_s, copies = replicas.dp * replicas.cp, np.zeros_like(replicas.dp), replicas.copies
    several = bool(np.any(copies > 1))
    stages_between = np.where(replicas.placement == Placement.TP_CP_EP_PP_DP, replicas.pp, 1.0)
    expert_ranks = ranks * replicas.tp / (replicas.ep * replicas.etp)
    for size, members, stride, tensors in (
        (dense, ranks, replicas.tp * stages_between, replicas.parameters.tensors.max(axis=0)),
        (expert, expert_ranks, replicas.ep * replicas.etp * stages_between, None),
    ):
        if not np.any(size):
            continue
        if what == "gradients":
            buckets = gradient_buckets(context, size, members)
        elif context.framework.gathers_tensors and tensors is not None:
            buckets = np.maximum(tensors, 1.0)
        else:
            buckets = np.maximum(np.round(size * wire / bucket_bytes(context, members)), 1.0)
        buckets = _collectives(context, replicas, buckets)
        # Copies of a slice are ``sharing`` ranks apart: scatter within the set first, all-reduce across the copies
        # second.
        each, sharing = size * wire / buckets, members / copies
        if what == "parameters" and context.framework.broadcasts_parameters:
            buckets, each = sharing, size * wire / sharing
            one = collective_time_s(context.cluster, "broadcast", each, sharing, stride)
        elif what == "parameters":
            one = collective_time_s(context.cluster, "all_gather", each, sharing, stride)
        elif context.framework.reduces_whole:
            one = _add_up_s(context, each, members, stride)
        else:
            shared = collective_time_s(context.cluster, "reduce_scatter", each, sharing, stride)
            if several:
                shared = shared + _add_up_s(context, each / sharing, copies, stride * sharing)
            one = np.where(replicas.zero >= 1, shared, _add_up_s(context, each, members, stride))
        # Among strategies with traffic, one whose slices are all frozen sends nothing.
        total_s = total_s + np.where((members > 1) & (size > 0), buckets * one, 0.0)
    if what == "parameters":
        total_s = np.where(replicas.zero >= 1, total_s, 0.0)
    return total_s


def _collectives(context: Context, replicas: Replicas, buckets: Floats) -> Floats:
    """Return the number of collectives of one reduction, [D]: buckets, or layers where these are units."""
    if not context.framework.layer_units:
        return buckets
    layers = np.maximum(np.round(context.model.layer_count / replicas.pp), 1.0)
    return np.where(replicas.zero >= 2, layers, buckets)


def _add_up_s(context: Context, size: Floats, ranks: Floats, stride: Floats) -> Floats:
    """Seconds of one all-reduce of ``size`` bytes of gradients."""
    if context.framework.tree_reduction:
        return collective_time_s(context.cluster, "all_reduce", size, ranks, stride)
    scattered = collective_time_s(context.cluster, "reduce_scatter", size, ranks, stride)
    return scattered + collective_time_s(context.cluster, "all_gather", size, ranks, stride)


def _tied_s(context: Context, replicas: Replicas) -> Floats:
    """Seconds of the all-reduce of a tied token table's gradient between first and last stage."""
    wire = reduced_bytes(context) * replicas.parameters.tied.max(axis=0)
    pipeline = replicas.tp * replicas.cp * replicas.pp
    block = np.where(replicas.placement == Placement.TP_CP_EP_PP_DP, pipeline, pipeline * replicas.dp)
    # Only the first and last stage have the table; one rank costs nothing.
    ranks = np.where((replicas.pp > 1) & (wire > 0), 2.0, 1.0)
    return collective_time_s(context.cluster, "all_reduce", wire, ranks, block_stride(block))


def _with_gradients(profile: FrameworkProfile, replicas: Replicas) -> tuple[Floats, Floats]:
    """Return the (dense, expert) parameters with gradients, [R, D]: trained ones, and all in flat units."""
    counts = replicas.parameters
    if profile.unit_parameters != "flat":
        return counts.trained_dense, counts.trained_expert
    flat = np.where(replicas.zero >= 2, 1.0, 0.0)
    return counts.trained_dense + flat * counts.beside_dense, counts.trained_expert + flat * counts.beside_expert


def _unit_gradient_bytes(context: Context) -> float:
    """Return the bytes of a gradient in a slice of a unit, cast to the type of its parameter; otherwise 0."""
    if not context.framework.unit_parameters:
        return 0.0
    return max(context.framework.held_gradient_bytes(context.workload.precision), _master_bytes(context))


def _copy_s(context: Context, replicas: Replicas) -> Floats:
    """Compute the seconds per microbatch of copies of units, [D], kernels that delay computation."""
    # Slices are cast for each pass that gathers them, and copied out of the gathered buffer; gradients are copied into
    # the reduction buffer in its type, and the result is added to the fp32 slices.
    profile = context.framework
    if profile.unit_parameters != "each":
        return np.zeros_like(replicas.dp)
    counts, width = replicas.parameters, activation_bytes(context.workload.precision)
    every, trained = (
        (of[0] + of[1]).max(axis=0)
        for of in ((counts.dense, counts.expert), (counts.trained_dense, counts.trained_expert))
    )
    gathers = np.where((replicas.zero == 3) & ~stays_whole(profile, replicas.pp), 2.0, 1.0)
    cast = (profile.master_bytes + width if profile.master_bytes else 0.0) / replicas.shards
    copied = gathers * (2 * width + cast) * every
    reduced = width + reduced_bytes(context) + 3 * _unit_gradient_bytes(context) / replicas.shards
    copied = np.where(replicas.zero >= 2, copied + reduced * trained, 0.0)
    return memory_bound_time_s(context.cluster.device, copied)


def _optimizer_s(context: Context, updated: Floats, parameters: Floats, passed: Floats) -> Floats:
    """Return the seconds of gradient norm, Adam and ``passed`` bytes of further memory traffic.

    The norm is over all ``parameters`` of the device's slice, Adam over those ``updated`` on the device, not its host.
    """
    device, profile = context.cluster.device, context.framework
    half = activation_bytes(context.workload.precision) == 2.0
    step = adam_time_s(device, updated, gradient_bytes=4.0, master_weights=half, state_bytes=profile.optimizer_bytes)
    norm = memory_bound_time_s(device, 4.0 * parameters + passed)
    return np.asarray(step + norm)
