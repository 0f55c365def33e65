"""Seconds of every block (layer kinds, embedding, head) on one microbatch: computation and exposed communication.

These are times of the device. Where the host needs longer to launch a stage's kernels than they take, the stage runs at
the host's speed (``host_passes_s``).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.layer.communication import Exchange, ends_exchange_s, layer_exchange
from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.layer.operators import embedding_operators, head_operators, layer_work
from forerun.simulator.layer.shard import CASTS, Shard
from forerun.simulator.layer.work import Work
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import Layer, MixtureOfExperts
from forerun.spaces.strategies import Context, Recompute

BLOCK_PARTS = ("compute", "recompute", "tensor", "context", "expert")
"""Parts of ``TIME_PARTS`` that a block's forward and backward passes are made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTimes:
    """Arrays [B, K] over blocks (layer kinds, embedding, head) and shards.

    ``forward_s`` and ``backward_s`` are whole passes, ``weight_s`` the weight-gradient part of the backward pass.
    ``parts`` splits ``forward_s + backward_s`` by ``BLOCK_PARTS``.
    """

    forward_s: Floats
    backward_s: Floats
    weight_s: Floats
    parts: Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class _Block:
    forward_s: Floats
    backward_s: Floats
    weight_s: Floats
    parts: Mapping[str, Floats]


def block_times(context: Context, shard: Shard) -> BlockTimes:
    """Return the times of all blocks of a model for K shards."""
    blocks = [_layer(context, layer, shard) for layer in layer_kinds(context.model)]
    embedding_s, head_s = ends_exchange_s(context, shard)
    blocks.append(_end(embedding_operators(context, shard).work, embedding_s))
    blocks.append(_end(head_operators(context, shard).work, head_s))
    return BlockTimes(
        forward_s=np.stack([block.forward_s for block in blocks]),
        backward_s=np.stack([block.backward_s for block in blocks]),
        weight_s=np.stack([block.weight_s for block in blocks]),
        parts={part: np.stack([block.parts[part] for block in blocks]) for part in BLOCK_PARTS},
    )


def shorter_sums_s(
    context: Context, layer: Layer, shard: Shard, shorter_s: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Return the seconds of its (forward, backward) pass that a layer saves where its last sum of each direction takes
    so much less than an all-reduce; what computation hid anyway saves nothing."""
    whole, less = _layer(context, layer, shard), _layer(context, layer, shard, shorter_s)
    return whole.forward_s - less.forward_s, whole.backward_s - less.backward_s


def _layer(
    context: Context, layer: Layer, shard: Shard, shorter_s: tuple[Floats | float, Floats | float] = (0, 0)
) -> _Block:
    """Return one layer's passes; recomputation repeats its forward pass, or a part of it, before the backward.
    ``shorter_s`` as for ``layer_exchange``."""
    work = layer_work(context, layer, shard)
    exchange = layer_exchange(context, layer, shard, work, shorter_s)
    full, selective = shard.recompute == Recompute.FULL, shard.recompute == Recompute.SELECTIVE
    again_s = np.where(full, work.forward_s, np.where(selective, work.repeated_s, 0.0))
    repeated = np.where(full, 1.0, 0.0)
    forward_s = work.forward_s + exchange.forward_s
    backward_s = work.backward_s + exchange.backward_s + again_s + repeated * exchange.forward_s
    return _Block(
        forward_s,
        backward_s,
        work.weight_gradient_s,
        {
            "compute": work.forward_s + work.backward_s,
            "recompute": again_s,
            **_exchange_parts(exchange, repeated),
        },
    )


def _exchange_parts(exchange: Exchange, repeated: Floats) -> dict[str, Floats]:
    """Return communication by kind; a repeated forward pass repeats its communication."""
    return {
        "tensor": exchange.tensor_forward_s * (1 + repeated) + exchange.tensor_backward_s,
        "context": exchange.context_forward_s * (1 + repeated) + exchange.context_backward_s,
        "expert": exchange.expert_forward_s * (1 + repeated) + exchange.expert_backward_s,
    }


def _end(work: Work, exchange_s: Floats) -> _Block:
    """Return the passes of embedding or head, which synchronise once in each direction."""
    zeros = np.zeros_like(work.forward_s)
    return _Block(
        work.forward_s + exchange_s,
        work.backward_s + exchange_s,
        work.weight_gradient_s,
        {
            "compute": work.forward_s + work.backward_s,
            "recompute": zeros,
            "tensor": 2 * exchange_s,
            "context": zeros,
            "expert": zeros,
        },
    )


def layer_launches_s(context: Context) -> float:
    """Seconds that the host needs to launch both passes of a dense layer."""
    return context.framework.host_layer_s / context.cluster.device.host_speed


def expert_launches_s(context: Context) -> float:
    """Seconds that the host needs besides for both passes of a layer with routed experts."""
    profile = context.framework
    scaled = CASTS.get(context.workload.precision) == "cast_scaled"
    return profile.host_expert_s + (profile.host_scales_s / context.cluster.device.host_speed if scaled else 0.0)


def host_passes_s(
    context: Context, layers: Floats, recompute: NDArray[np.int64], tp: Floats, pp: Floats | float
) -> tuple[Floats, Floats]:
    """Seconds that the host needs to launch a stage's (forward, backward) pass of one microbatch; ``layers``
    [kinds, ...] are those on it.

    A third of the launches of a layer are its forward pass; full recomputation launches them once more. A layer that
    only mixes tokens or only feeds forward has half of them, the latter all that experts add.
    """
    profile, launches_s, routed_s = context.framework, layer_launches_s(context), expert_launches_s(context)
    base, again = np.zeros_like(tp), np.where(recompute == Recompute.FULL, launches_s / 3, 0.0)
    whole = np.zeros_like(base)
    ranks_s = (tp - 1) * profile.host_rank_s
    if profile.pipeline_rank_s:
        ranks_s = ranks_s + np.where(np.asarray(pp) > 1, tp - 1, 0.0) * profile.pipeline_rank_s
    for kind, number in zip(layer_kinds(context.model), layers, strict=True):
        halved = not (kind.attends and kind.feeds_forward)
        count = number / 2 if halved else number
        experts_s = routed_s * (2 if halved else 1)
        routed = isinstance(kind.mlp, MixtureOfExperts) and kind.feeds_forward
        each = launches_s + (experts_s if routed else 0.0)
        base = base + count * (each + ranks_s)
        whole = whole + count
    return base / 3, base * (2 / 3) + whole * again
