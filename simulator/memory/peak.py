"""Peak memory of every candidate: the largest of its representative stages, with its parts.

Steady state from the second step on: optimizer states exist when the forward passes run, and gradients unless the
framework frees them after each update.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.layer.activations import (
    embedding_activations,
    gathered_buffers,
    head_activations,
    layer_activations,
)
from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.layer.shard import BUFFER_BYTES, Shard, activation_bytes
from forerun.simulator.layer.widths import loss_vocab
from forerun.simulator.replicas.reduction import ReplicaMemory
from forerun.simulator.score_table import MEMORY_PARTS, Floats
from forerun.simulator.stages.plan import in_flight
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.schedules.catalogue import with_trait
from forerun.spaces.strategies import Context

HOST_COPIES = 3
"""Layers on the device under offload to the host: the running one, one on its way out, one on its way in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes per representative stage, [R, S]."""

    kept: Floats
    """Activations of all microbatches in flight."""
    each: Floats
    """Activations of one microbatch on one virtual stage."""
    working: Floats
    """Working set of one layer's backward pass."""
    logits: Floats
    """Memory around the loss."""
    held_logits: Floats
    """Part of ``logits`` during the layers' backward passes."""
    idle: Floats
    """Buffers that the allocator keeps while memory is free."""
    idle_share: Floats
    """Further idle buffers, as a share (0 to 1) of all of these."""
    stage: Floats
    """Number of the pipeline rank."""
    passing: Floats
    """Activations of layers on their way to or from the host."""
    undone: Floats
    """1.0 where no backward pass has run at the peak of activations, else 0.0."""
    gap: Floats
    """Free memory after half-precision logits that is too small for fp32 ones."""

    @property
    def moving(self) -> Floats:
        """Activations at the fuller of two moments: the loss, and the backward pass of a layer."""
        return self.kept + self.passing + np.maximum(self.logits, self.held_logits + self.working)

    def beside(self, other: "StageMemory") -> "StageMemory":
        """Return the memory of stages that also have the layers of ``other``; only one layer is computed at a time."""
        added = {name: getattr(self, name) + getattr(other, name) for name in _ADDED}
        return replace(self, working=np.maximum(self.working, other.working), **added)


_ADDED = ("kept", "each", "logits", "held_logits", "idle", "passing", "gap")
"""Fields of ``StageMemory`` that layers with several settings sum up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalMemory:
    """Peaks of N candidates, shape N each."""

    peak_bytes: Floats
    allocated_bytes: Floats
    """Live tensors only."""
    parts: dict[str, Floats]
    """The peak by ``MEMORY_PARTS``."""
    stage: NDArray[np.int64]
    """Pipeline rank with the peak."""
    pressed: NDArray[np.bool_]
    """Whether the allocator's idle buffers do not fit on this rank."""
    cached_bytes: Floats
    """Free blocks of this rank that the allocator keeps for communication streams, and gaps between live tensors. Both
    are not in the peak, since cached blocks are freed before an allocation fails."""


def activation_memory(
    context: Context,
    shard: Shard,
    key: NDArray[np.intp],
    blocks: Floats,
    stage: Floats,
    schedule: Floats,
    pp: Floats,
    vpp: Floats,
    microbatches: Floats,
    in_flight_factor: Floats | float = 1.0,
    spared: Floats | None = None,
    group: Floats | None = None,
) -> StageMemory:
    """Return the activation memory of S strategies.

    ``key``: their index into ``shard``; ``blocks`` [B, R, S]: their layers; ``in_flight_factor``: see ``StagePlans``;
    ``spared`` [kinds, R, S]: layers that keep everything although others are recomputed; ``group`` [S]: number of
    layers recomputed at once from the input of the first (None: one).
    """
    # kept = in-flight microbatches x (sum over kinds of layers x kept of a layer + embedding), with the full
    # activations of spared layers; working = the largest backward pass of one layer; logits = head x microbatches whose
    # forward pass precedes the first backward pass.
    profile = context.framework
    ahead = profile.passes_ahead
    flight = in_flight(schedule, stage, pp, vpp, microbatches, in_flight_factor, profile.vocabulary, ahead)
    kept = np.zeros_like(stage)
    working = np.zeros_like(stage)
    idle = np.zeros_like(stage)
    most = np.zeros_like(stage)
    away = shard.away[key]
    grouped = None if group is None else _grouped(blocks, vpp, group)
    for kind, layer in enumerate(layer_kinds(context.model)):
        activations = layer_activations(context, layer, shard)
        kept += blocks[kind] * activations.kept[key]
        recomputed = blocks[kind]
        if spared is not None:
            kept += spared[kind] * (activations.whole - activations.kept)[key]
            recomputed = recomputed - spared[kind]
        if away.any():
            most = np.maximum(most, np.where(blocks[kind] > 0, activations.kept[key], 0.0))
        if context.framework.keeps_gathered:
            idle += blocks[kind] * gathered_buffers(context, layer, shard)[key]
        own = np.where(recomputed > 0, activations.working[key], activations.gradients[key])
        if grouped is not None:
            kept -= blocks[kind] * activations.kept[key] * grouped[0]
            own = own + grouped[1] * activations.whole[key]
        working = np.maximum(working, np.where(blocks[kind] > 0, own, 0.0))
    kept += blocks[-2] * embedding_activations(context, shard)[key]
    at_once = np.where(
        with_trait(schedule, lambda kind: kind.forwards_first), microbatches, np.minimum(1.0 + ahead, microbatches)
    )
    logits = blocks[-1] * (head_activations(context, shard)[key] * at_once)
    held = np.where(pp > 1, np.maximum(flight - 2.0, 0.0), 1.0) if profile.gathers_ahead else 1.0
    each, kept, idle = kept / vpp, kept * flight, idle * held
    passing = np.zeros_like(stage)
    if away.any():
        # Tensors beyond the host's memory stay on the device.
        capacity = context.cluster.host.get("memory_bytes", np.inf) / context.cluster.devices_per_node
        hosted = away * kept
        hosted = np.where(hosted <= capacity, hosted, 0.0)
        passing, kept = np.minimum(hosted, HOST_COPIES * away * most), kept - hosted
    # Working memory of layer graphs is private to them, so the loss cannot use it.
    held_meanwhile = profile.holds_logits or profile.graphs == "layers"
    held_logits = logits if held_meanwhile else logits * ((at_once - 1.0) / at_once)
    return StageMemory(
        kept=kept,
        each=each,
        working=working,
        logits=logits,
        held_logits=held_logits,
        idle=idle,
        idle_share=np.where(pp > 1, profile.pipeline_idle, np.zeros_like(kept)),
        stage=stage,
        passing=passing,
        gap=_gap_bytes(context, shard)[key] * blocks[-1] * at_once,
        undone=np.where(flight >= microbatches, 1.0, np.zeros_like(kept)),
    )


def _gap_bytes(context: Context, shard: Shard) -> Floats:
    """Return the bytes of a microbatch's logits that a loss in fp32 frees, of trainers in units, [K]."""
    profile, width = context.framework, activation_bytes(context.workload.precision)
    copies = width + profile.logit_bytes > 2 * BUFFER_BYTES and width < BUFFER_BYTES
    if not (profile.unit_parameters and copies and "cross_entropy" in context.eager):
        return np.zeros_like(shard.tokens)
    return np.asarray(width * shard.tokens * loss_vocab(context, shard.tp))


def _grouped(blocks: Floats, vpp: Floats, group: Floats) -> tuple[Floats, Floats]:
    """Return the share of layer inputs that are not kept, and the live layers without the running one, [R, S].

    ``group`` layers are recomputed at once.
    """
    # l layers in v virtual stages keep v ceil(l / v / g) inputs with groups of g; besides the running layer min(g, l /
    # v) - 1 layers are live.
    total = blocks[:-2].sum(axis=0)
    # One input per group of a virtual stage; the last group has the remainder.
    kept = vpp * np.ceil(total / vpp / group) / np.maximum(total, 1.0)
    return np.where(group > 1, 1.0 - kept, 0.0), np.minimum(group, np.maximum(total / vpp, 1.0)) - 1.0


def fullest_bytes(
    activations: StageMemory, key: NDArray[np.intp], replicas: ReplicaMemory, replica: NDArray[np.intp]
) -> Floats:
    """Return the allocated bytes of stages at the fullest moment (``_moments_bytes``), [R, N]."""
    if _ends_fuller(replicas):
        first, *others = _moments_bytes(activations, (slice(None), key), replicas, (slice(None), replica))
        for moment in others:
            np.maximum(first, moment, out=first)
        return first
    # The two moments differ in one term only: its larger value is taken before the gather.
    held = _fixed_bytes(replicas)[:, replica]
    held += (activations.kept + activations.passing)[:, key]
    held += np.maximum(activations.logits, activations.held_logits + activations.working)[:, key]
    return held


def _fixed_bytes(replicas: ReplicaMemory) -> Floats:
    """Return the bytes of states and permanent buffers, [R, D]."""
    return replicas.parameter_bytes + replicas.gradient_bytes + replicas.optimizer_bytes + replicas.buffer_bytes


def _moments_bytes(activations: StageMemory, key: Any, replicas: ReplicaMemory, replica: Any) -> list[Floats]:
    """Return the allocated bytes at two or three moments.

    The moments are the loss, the backward pass of a layer after it and, where it can be fuller, the end of this
    backward pass. ``key`` and ``replica``: indices into the arrays [R, S] of activations and [R, D] of replicas.
    """
    # The end has all gradients and all parameters that stay gathered, but not the activations of its microbatch.
    held = _fixed_bytes(replicas)[replica] + (activations.kept + activations.passing)[key]
    # At the loss: states + kept + logits. At the backward pass of a layer: states + kept + held logits + working.
    layer = (activations.held_logits + activations.working)[key]
    if not _ends_fuller(replicas):
        return [held + activations.logits[key], held + layer]
    gradients = activations.undone[key] * replicas.dropped_bytes[replica]
    held = held - gradients
    layer = layer + replicas.backward_bytes[replica]
    without_layer = activations.held_logits[key] + replicas.end_bytes[replica]
    later = gradients + replicas.whole_bytes[replica] - activations.each[key]
    last = held + later + np.maximum(layer, without_layer)
    return [held + activations.logits[key], held + layer, last]


def _ends_fuller(replicas: ReplicaMemory) -> bool:
    """Check whether some backward pass may need more memory at its end than at its start."""
    return bool(replicas.whole_bytes.any() or replicas.backward_bytes.any() or replicas.dropped_bytes.any())


def lost_bytes(profile: FrameworkProfile, live: Floats, parts: Mapping[str, Floats]) -> Floats:
    """Return the bytes lost to allocator gaps with ``live`` bytes in use, of ``parts``; any shape."""
    moving = parts["activations"] + parts["working"] + parts["logits"]
    return np.asarray(profile.fragmentation * (live if profile.states_fragment else moving))


def total_memory(
    context: Context,
    activations: StageMemory,
    key: NDArray[np.intp],
    replicas: ReplicaMemory,
    replica: NDArray[np.intp],
) -> TotalMemory:
    """Return the peak over stages of N candidates; ``key`` and ``replica``: their columns in the two tables."""
    profile = context.framework
    allocated = fullest_bytes(activations, key, replicas, replica)
    slot = np.argmax(allocated, axis=0)
    live = np.take_along_axis(allocated, slot[None, :], axis=0)[0]
    moments = np.stack(_moments_bytes(activations, (slot, key), replicas, (slot, replica)))
    moment = np.argmax(moments, axis=0)
    # Flat indices of the peak's stage in arrays of all stages: one index is faster than two.
    held, active = slot * replicas.parameter_bytes.shape[1] + replica, slot * activations.kept.shape[1] + key
    parts = _parts_at(moment, activations, active, replicas, held)
    parts["reserve"] = profile.context_bytes + profile.communicator_bytes + lost_bytes(profile, live, parts)
    # Idle buffers are freed before an allocation fails, so they never make a strategy infeasible.
    room = np.maximum(context.cluster.device.memory_bytes - live - parts["reserve"], 0.0)
    moving = parts["activations"] + parts["working"] + parts["logits"]
    idle = activations.idle.take(active) + activations.idle_share.take(active) * moving
    parts["reserve"] += np.minimum(idle, room)
    return TotalMemory(
        peak_bytes=live + parts["reserve"],
        allocated_bytes=live,
        parts={name: parts[name] for name in MEMORY_PARTS},
        stage=activations.stage.take(active).astype(np.int64),
        pressed=idle > room,
        cached_bytes=_cached_bytes(moments, activations, active, replicas, held),
    )


def _parts_at(
    moment: NDArray[np.intp],
    activations: StageMemory,
    active: NDArray[np.intp],
    replicas: ReplicaMemory,
    held: NDArray[np.intp],
) -> dict[str, Floats]:
    """Split the allocated bytes at a ``moment`` of ``_moments_bytes`` (N) by ``MEMORY_PARTS``, without the reserve.

    ``active`` and ``held``: flat indices into the arrays of activations and of replicas.
    """
    runs, gradients = moment > 0, replicas.gradient_bytes.take(held)
    parts = {
        "parameters": replicas.parameter_bytes.take(held),
        "gradients": gradients,
        "optimizer": replicas.optimizer_bytes.take(held),
        "activations": activations.kept.take(active) + activations.passing.take(active),
        "working": np.where(runs, activations.working.take(active), 0.0),
        "logits": np.where(runs, activations.held_logits.take(active), activations.logits.take(active)),
        "buffers": replicas.buffer_bytes.take(held),
    }
    if not _ends_fuller(replicas):
        return parts
    last, backward, end = moment == 2, replicas.backward_bytes.take(held), replicas.end_bytes.take(held)
    over = last & (parts["working"] + backward < end)
    undone = activations.undone.take(active) * replicas.dropped_bytes.take(held)
    parts["gradients"] = np.where(last, gradients, gradients - undone)
    parts["activations"] -= np.where(last, activations.each.take(active), 0.0)
    parts["working"] = np.where(over, 0.0, parts["working"])
    parts["buffers"] += np.where(over, end, np.where(runs, backward, 0.0))
    parts["buffers"] += np.where(last, replicas.whole_bytes.take(held), 0.0)
    return parts


def _cached_bytes(
    moments: Floats,
    activations: StageMemory,
    active: NDArray[np.intp],
    replicas: ReplicaMemory,
    held: NDArray[np.intp],
) -> Floats:
    """Compute ``TotalMemory.cached_bytes`` of stages with ``moments`` [M, N]; other parameters as for ``_parts_at``."""
    gap = activations.gap.take(active)
    if not _ends_fuller(replicas):
        return gap
    # Each stream keeps its maximum. Sharded gradients are allocated by the stream that reduces them.
    gradients, reduction = replicas.dropped_bytes.take(held), replicas.reduce_stream_bytes.take(held)
    early = gradients * (1.0 - activations.undone.take(active))
    # cached = max over moments of (all - streams) + maxima of the streams - max over moments of all + gap.
    streams = np.stack([early, early, gradients + reduction])
    kept = gradients + reduction + replicas.gather_stream_bytes.take(held)
    return np.asarray((moments - streams).max(axis=0) + kept - moments.max(axis=0) + gap)
