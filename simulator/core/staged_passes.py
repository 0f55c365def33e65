"""Costs of each stage of strategies with different stages, by the common rules, gathered stage by stage."""

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.layer.known_times import known_block_times
from forerun.simulator.layer.shard import Shard, accumulates_separately
from forerun.simulator.layer.times import BLOCK_PARTS, host_passes_s, unpaired_share
from forerun.simulator.memory.peak import StageMemory, activation_memory
from forerun.simulator.replicas.reduction import REPLICA_DEGREES, ReplicaCosts, Replicas, reduces_each, replica_costs
from forerun.simulator.score_table import Floats
from forerun.simulator.stages.parameters import StageParameters, stage_parameters
from forerun.simulator.stages.rows import StageRows
from forerun.spaces.strategies import Context, Recompute

Keys = NDArray[np.intp]

_BITS = {"tp": 10, "cp": 10, "ep": 11, "etp": 7, "mbs": 14, "sp": 1, "separate_fp32": 1, "kind": 8}
"""Bits of each degree in the key of a shard, above every legal degree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePasses:
    """One microbatch on each stage, [S, N]."""

    forward_s: Floats
    backward_s: Floats
    weight_s: Floats
    """Weight-gradient part of ``backward_s``."""
    gap_s: Floats
    """Device waits for the host, in both passes."""
    parts: dict[str, Floats]
    """Device seconds by kind."""
    memory: StageMemory
    """Activations."""


def stage_passes(context: Context, rows: StageRows) -> StagePasses:
    """Return the costs of a microbatch on every stage."""
    shard, recomputed, rest = _shards(context, rows)
    times = known_block_times(context, shard)
    repeated, others = _blocks(rows)
    forward_s = _dot(repeated, times.forward_s, recomputed) + _dot(others, times.forward_s, rest)
    backward_s = _dot(repeated, times.backward_s, recomputed) + _dot(others, times.backward_s, rest)
    weight_s = _dot(repeated, times.weight_s, recomputed) + _dot(others, times.weight_s, rest)
    alone_s = [np.zeros_like(forward_s), np.zeros_like(backward_s)]
    if times.alone_s is not None:
        # Paired passes hide each other's expert traffic; passes of ramp-up and ramp-down have no partner.
        share = unpaired_share(rows.schedule, rows.pp, rows.microbatches)
        alone_s = [_dot(rows.blocks, values, rest) * share for values in times.alone_s]
        forward_s, backward_s = forward_s + alone_s[0], backward_s + alone_s[1]
    none = np.full(rows.kind.shape, int(Recompute.NONE))
    host = [
        host_passes_s(context, blocks[:-2], kind, rows.tp, rows.pp)
        for blocks, kind in ((repeated, rows.kind), (others, none))
    ]
    host_forward_s, host_backward_s = host[0][0] + host[1][0], host[0][1] + host[1][1]
    # As in the event level: each pass takes the longer of device and host, and the difference is idle time.
    device_s = forward_s + backward_s
    forward_s, backward_s = np.maximum(forward_s, host_forward_s), np.maximum(backward_s, host_backward_s)
    parts = {
        part: _dot(repeated, times.parts[part], recomputed) + _dot(others, times.parts[part], rest)
        for part in BLOCK_PARTS
    }
    parts["expert"] = parts["expert"] + alone_s[0] + alone_s[1]
    return StagePasses(
        forward_s=forward_s,
        backward_s=backward_s,
        weight_s=np.maximum(weight_s, host_forward_s),
        gap_s=forward_s + backward_s - device_s,
        parts=parts,
        memory=_memory(context, rows, shard, ((repeated, recomputed), (others, rest))),
    )


def stage_replicas(context: Context, rows: StageRows, passes: StagePasses) -> ReplicaCosts:
    """Return the once-per-step costs of N strategies: time of the slower half, memory of every stage.

    The second half gathers while the first microbatch fills the first half, and reduces while the last one drains; only
    the excess counts. The degrees of a half are those of its first, or of its last stage.
    """
    parameters = stage_parameters(context, rows.blocks, rows.tp, rows.ep, rows.etp)
    first = _half(context, rows, parameters, ~rows.second, 0)
    if not rows.second.any():
        return first
    second = _half(context, rows, parameters, rows.second | ~rows.second.any(axis=0), -1)
    # Stages of the first half run before the second half has its first microbatch, and after its last one.
    before = rows.exists * ~rows.second * rows.second.any(axis=0)
    each = reduces_each(context.framework, rows.zero[0], rows.pp[0])
    early_s = {
        "reduce_s": np.where(each, 0.0, (before * passes.backward_s).sum(axis=0)),
        "gather_s": np.where(rows.zero[0] < 3, (before * passes.forward_s).sum(axis=0), 0.0),
    }
    slower = {
        name: np.maximum(getattr(first, name), getattr(second, name) - early_s.get(name, 0.0))
        for name in ("reduce_s", "gather_s", "tied_s", "optimizer_s", "copy_s")
    }
    stored = {
        name: np.where(rows.second, getattr(second, name), getattr(first, name))
        for name in (field.name for field in dataclasses.fields(ReplicaCosts))
        if name.endswith("_bytes")
    }
    halves = rows.second.any(axis=0)
    return ReplicaCosts(
        **slower,
        **stored,
        buckets=np.minimum(first.buckets, second.buckets),
        largest=np.where(halves, 0.0, first.largest),
        first=np.where(halves, 1.0, first.first),
    )


def _half(
    context: Context, rows: StageRows, parameters: StageParameters, member: NDArray[np.bool_], end: int
) -> ReplicaCosts:
    """Return the costs of the stages of one half; all other stages count as the one at the ``end`` of the pipeline."""
    values = {
        field.name: np.where(member, getattr(parameters, field.name), getattr(parameters, field.name)[end])
        for field in dataclasses.fields(StageParameters)
    }
    degrees = {axis: getattr(rows, axis)[end] for axis in REPLICA_DEGREES}
    away = np.where(member, rows.optimizer_away, rows.optimizer_away[end])
    return replica_costs(context, Replicas(parameters=StageParameters(**values), on_host=away, **degrees))


def _shards(context: Context, rows: StageRows) -> tuple[Shard, Keys, Keys]:
    """Return the distinct shards of a layer, and the shard of each stage's recomputed and other layers, [S, N]."""
    common: NDArray[np.int64] = np.zeros(rows.number.shape, dtype=np.int64)
    separate_fp32 = accumulates_separately(context, rows.zero)
    for axis, bits in _BITS.items():
        if axis != "kind":
            values = separate_fp32 if axis == "separate_fp32" else getattr(rows, axis)
            # One integer per shard lets ``np.unique`` find the distinct ones in a single sort.
            common = (common << bits) | values.astype(np.int64)
    keys = np.stack([(common << _BITS["kind"]) | kind for kind in (rows.kind, np.zeros_like(rows.kind))])
    distinct, inverse = np.unique(keys, return_inverse=True)
    shares, share = np.unique(rows.away, return_inverse=True)
    if len(shares) > 1:  # further bits do not fit
        both = inverse.reshape(keys.shape) * len(shares) + share.reshape(rows.away.shape)
        pairs, inverse = np.unique(both, return_inverse=True)
        distinct, shares = distinct[pairs // len(shares)], shares[pairs % len(shares)]
    inverse = inverse.reshape(keys.shape)
    value, left = {}, distinct
    for axis, bits in reversed(_BITS.items()):
        value[axis] = left & ((1 << bits) - 1)
        left = left >> bits
    number = {axis: value[axis].astype(np.float64) for axis in ("tp", "cp", "ep", "etp", "mbs")}
    tokens = number["mbs"] * (context.workload.seq_len / number["cp"])
    sp = value["sp"] == 1
    inner = np.where(sp, tokens / number["tp"], tokens)
    shard = Shard(
        **number,
        sp=sp,
        recompute=value["kind"],
        tokens=tokens,
        inner_tokens=inner,
        separate_fp32=value["separate_fp32"] == 1,
        away=np.broadcast_to(shares, len(distinct)),
    )
    return shard, inverse[0], inverse[1]


def _blocks(rows: StageRows) -> tuple[Floats, Floats]:
    """Return the blocks that a stage recomputes, and its other blocks (including embedding and head)."""
    repeated = np.concatenate((rows.recomputed, np.zeros_like(rows.blocks[-2:])))
    return repeated, rows.blocks - repeated


def _dot(blocks: Floats, values: Floats, key: Keys) -> Floats:
    """Sum over blocks of counts [B, S, N] times values [B, K] of each stage's key."""
    total: Floats = np.zeros_like(blocks[0])
    for count, value in zip(blocks, values, strict=True):
        total = total + count * value[key]
    return total


def _memory(
    context: Context, rows: StageRows, shard: Shard, groups: tuple[tuple[Floats, Keys], tuple[Floats, Keys]]
) -> StageMemory:
    """Return the activation memory of every stage, from both groups of layers."""
    vpp = np.ones_like(rows.pp)
    one, other = (
        activation_memory(context, shard, key, blocks, rows.number, rows.schedule, rows.pp, vpp, rows.microbatches)
        for blocks, key in groups
    )
    return one.beside(other)
