"""Seconds of every block (layer kinds, embedding, head) on one microbatch: computation and exposed communication.

Times of blocks are device times. Where the host takes longer to launch a stage's kernels than the device to run them,
the stage runs at the host's pace (``host_passes_s``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.costs.host import host_link_rate
from forerun.simulator.layer.activations import layer_activations
from forerun.simulator.layer.blocks import layer_work, stops_recompute
from forerun.simulator.layer.communication import LayerTraffic, ends_exchange_s, layer_exchange, tensor_blocks
from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.layer.known_work import known_block_work
from forerun.simulator.layer.shard import Shard
from forerun.simulator.layer.work import Work
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import Layer, MixtureOfExperts
from forerun.spaces.schedules.catalogue import by_schedule
from forerun.spaces.strategies import Context, Recompute

BLOCK_PARTS = ("compute", "recompute", "tensor", "context", "expert")
"""Parts of ``TIME_PARTS`` in a block's forward and backward passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTimes:
    """Arrays [B, K] over blocks (layer kinds, embedding, head) and shards."""

    forward_s: Floats
    """Entire forward passes."""
    backward_s: Floats
    """Entire backward passes, including recompute."""
    weight_s: Floats
    """The weight-gradient part of the backward pass."""
    parts: Mapping[str, Floats]
    """``forward_s + backward_s`` by ``BLOCK_PARTS``."""
    recompute: Mapping[str, Floats]
    """Additional seconds of recompute by part, all in the backward pass."""
    alone_s: tuple[Floats, Floats] | None
    """Further seconds of (forward, backward) passes without a simultaneous microbatch that could hide expert traffic.
    None where the software never overlaps them."""

    @property
    def recompute_s(self) -> Floats:
        """All additional time of recompute."""
        return sum(self.recompute.values(), np.zeros_like(self.backward_s))


@dataclass(frozen=True, slots=True)
class _Block:
    forward_s: Floats
    backward_s: Floats
    weight_s: Floats
    parts: Mapping[str, Floats]
    recompute: Mapping[str, Floats] = field(default_factory=dict)
    alone_s: tuple[Floats, Floats] | None = None


def block_times(context: Context, shard: Shard) -> BlockTimes:
    """Return the times of all blocks of a model for K shards."""
    *layers, embedding, head = known_block_work(context, shard)
    kinds = zip(layer_kinds(context.model), layers, strict=True)
    blocks = [_layer(context, layer, work, shard) for layer, work in kinds]
    embedding_s, head_s = ends_exchange_s(context, shard)
    blocks += [_end(embedding, embedding_s), _end(head, head_s)]
    return BlockTimes(
        forward_s=np.stack([block.forward_s for block in blocks]),
        backward_s=np.stack([block.backward_s for block in blocks]),
        weight_s=np.stack([block.weight_s for block in blocks]),
        parts={part: np.stack([block.parts[part] for block in blocks]) for part in BLOCK_PARTS},
        recompute={
            part: np.stack([block.recompute.get(part, np.zeros(len(shard))) for block in blocks])
            for part in BLOCK_PARTS
            if part in blocks[0].recompute
        },
        alone_s=_alone_s(context, blocks),
    )


def _alone_s(context: Context, blocks: list[_Block]) -> tuple[Floats, Floats] | None:
    """Return the seconds of ``BlockTimes.alone_s``, [B, K] each."""
    if not (context.framework.overlap_expert and context.moe):
        return None
    none = np.zeros_like(blocks[0].forward_s)
    there, back = zip(*(block.alone_s or (none, none) for block in blocks), strict=True)
    return np.stack(there), np.stack(back)


def unpaired_share(schedule: Floats, pp: Floats, microbatches: Floats) -> Floats:
    """Return the share of a pipeline rank's passes without a simultaneous pass of another microbatch, [S]."""
    return by_schedule(schedule, lambda kind: kind.unpaired_share(pp, microbatches))


def shorter_sums_s(
    context: Context, layer: Layer, shard: Shard, shorter_s: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Return the seconds that a layer's (forward, backward) pass saves by a shorter last sum in each direction.

    ``shorter_s``: saving of the sum over an all-reduce; hidden communication saves nothing.
    """
    work = layer_work(context, layer, shard)
    whole, less = _layer(context, layer, work, shard), _layer(context, layer, work, shard, shorter_s)
    return whole.forward_s - less.forward_s, whole.backward_s - less.backward_s


def _layer(
    context: Context,
    layer: Layer,
    work: Work,
    shard: Shard,
    shorter_s: tuple[Floats | float, Floats | float] = (0, 0),
) -> _Block:
    """Return one layer's passes, with recompute before the backward pass; ``shorter_s``: see ``layer_exchange``."""
    exchange = layer_exchange(context, layer, shard, work, shorter_s)
    if layer.feeds_forward and isinstance(layer.mlp, MixtureOfExperts):
        exchange = exchange.waiting(expert_wait_s(context, layer))
    full = shard.recompute == Recompute.FULL
    repeated = _repeated(context, layer, shard, full)
    recompute = {
        "recompute": np.where(full, work.forward_s - work.not_recomputed_s, _modules_s(work, shard)),
        "tensor": exchange.tensor_forward_s * repeated["tensor"],
        "context": exchange.context_forward_s * repeated["context"],
        "expert": exchange.expert_forward_s * repeated["expert"],
    }
    parts = {
        "compute": work.forward_s + work.backward_s,
        "recompute": recompute["recompute"],
        "tensor": exchange.tensor_forward_s + exchange.tensor_backward_s + recompute["tensor"],
        "context": exchange.context_forward_s + exchange.context_backward_s + recompute["context"],
        "expert": exchange.expert_forward_s + exchange.expert_backward_s + recompute["expert"],
    }
    forward_s = work.forward_s + exchange.forward_s
    if layer.trains == "nothing":
        return _forward_only(work, exchange)
    backward_s = work.backward_s + exchange.backward_s + sum(recompute.values())
    if shard.away.any():
        copy_s = shard.away * layer_activations(context, layer, shard).kept / host_link_rate(context.cluster)
        # Where devices reach each other through the host, their exchange shares the link with copies to the host.
        shared = context.cluster.levels[:1] and context.cluster.levels[0].kind == "pcie"
        alone_s = (work.forward_s, work.backward_s + recompute["recompute"]) if shared else (forward_s, backward_s)
        waits = np.maximum(copy_s - alone_s[0], 0.0), np.maximum(copy_s - alone_s[1], 0.0)
        forward_s, backward_s = forward_s + waits[0], backward_s + waits[1]
        parts["recompute"] = parts["recompute"] + waits[0] + waits[1]
    unpaired_s = exchange.alone_forward_s, exchange.alone_backward_s
    return _Block(forward_s, backward_s, work.weight_gradient_s, parts, recompute, unpaired_s)


def _forward_only(work: Work, exchange: LayerTraffic) -> _Block:
    """Return the forward pass of a layer without a backward pass."""
    none = np.zeros_like(work.forward_s)
    parts = {
        "compute": work.forward_s,
        "recompute": none,
        "tensor": exchange.tensor_forward_s,
        "context": exchange.context_forward_s,
        "expert": exchange.expert_forward_s,
    }
    recompute = {part: none for part in parts if part != "compute"}
    forward_s = work.forward_s + exchange.forward_s
    return _Block(forward_s, none, none, parts, recompute, (exchange.alone_forward_s, none))


def _modules_s(work: Work, shard: Shard) -> Floats:
    """Seconds to recompute the modules named by each shard."""
    total = np.where(shard.recompute & Recompute.SELECTIVE, work.repeated_s, 0.0)
    for module, seconds in work.modules_s.items():
        total = total + np.where(shard.recompute & module, seconds, 0.0)
    return total


def _repeated(context: Context, layer: Layer, shard: Shard, full: NDArray[np.bool_]) -> dict[str, Floats]:
    """Return the share of the forward pass's communication of each kind that recompute repeats.

    Full recompute repeats all communication before its end; recompute of modules repeats that of fully recomputed
    blocks (feed-forward, mixture, shared experts).
    """
    mixture = (shard.recompute & Recompute.MOE) != 0
    fed = mixture if isinstance(layer.mlp, MixtureOfExperts) else (shard.recompute & Recompute.MLP) != 0
    fed = fed | ((shard.recompute & Recompute.SHARED_EXPERTS) != 0)
    synchronised = layer.feeds_forward and not (isinstance(layer.mlp, MixtureOfExperts) and not layer.mlp.shared_hidden)
    share = 1.0 / max(tensor_blocks(layer), 1) if synchronised else 0.0
    # After its last product a layer scatters, which is half of the block's traffic, or all-reduces.
    unsent = share * np.where(shard.sp, 0.5, 1.0) if stops_recompute(context, layer) else 0.0
    return {
        "tensor": np.where(full, 1.0 - unsent, np.where(fed, share, 0.0)),
        "context": np.where(full, 1.0, 0.0),
        "expert": np.where(full | mixture, 1.0, 0.0),
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
    """Seconds of the host's launches of both passes of a dense layer; none where a step is one program."""
    if context.compiled:
        return 0.0
    return context.framework.host_layer_s / context.cluster.device.host_speed


GRAPHED = 0.7 / 4.4
"""Launches of a layer in CUDA graphs relative to those of its kernels (docs/decisions/host-speed.md)."""


@lru_cache(maxsize=256)
def launched_share(layer: Layer, hidden: int, graphed: tuple[str, ...] = ()) -> float:
    """Return the launches of a layer relative to a dense layer, without routed experts.

    ``graphed``: parts in CUDA graphs.

    Attention and feed-forward have half each. Latent attention and other mixers launch more operators than the four of
    softmax attention (without norm and residual sum); shared experts are a feed-forward in addition to the routed ones.
    Half of a mixture's own launches are its norm, router and preparation of tokens, the other half their movement and
    sum.
    """

    def held(part: str) -> float:
        return GRAPHED if part in graphed else 1.0

    share = 0.0
    for mixer in (layer.mixer, layer.cross_attention) if layer.attends else ():
        if mixer is not None:
            share += max(len(mixer.steps(layer.hidden or hidden)) + 2, 6) / 12 * held("attention")
    if layer.feeds_forward and not isinstance(layer.mlp, MixtureOfExperts):
        share += 0.5 * held("mlp")
    elif layer.feeds_forward:
        share += 0.25 * held("router") + 0.25 * held("experts")
    if layer.feeds_forward and isinstance(layer.mlp, MixtureOfExperts) and layer.mlp.shared is not None:
        share += 0.5 * held("router")
    return share


def expert_launches_s(context: Context) -> float:
    """Additional seconds of the host for both passes of a layer with routed experts."""
    return context.framework.host_expert_s


def expert_wait_s(context: Context, layer: Layer) -> float:
    """Seconds that a device waits in both passes of a layer with routed experts.

    The device waits until its host has read token counts and is ahead again; kernels in graphs are launched at once.
    """
    profile, hidden = context.framework, context.model.hidden
    left = launched_share(layer, hidden, profile.graphed) / launched_share(layer, hidden)
    return profile.expert_wait_s * left / context.cluster.device.host_speed


def host_passes_s(
    context: Context,
    layers: Floats,
    recompute: NDArray[np.int64],
    tp: Floats,
    pp: Floats | float,
    spared: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Seconds of the host's launches of a stage's (forward, backward) pass of one microbatch.

    ``layers`` [kinds, ...]: layers of the stage; ``recompute``: numbers of their ``Recompute``; ``spared``: layers that
    are not recomputed although others are.

    A third of a layer's launches are its forward pass; full recompute launches them once more, recompute of the
    feed-forward half of them. ``launched_share``: launches relative to a dense layer.
    """
    profile, launches_s, routed_s = context.framework, layer_launches_s(context), expert_launches_s(context)
    half = (recompute & (Recompute.MLP | Recompute.MOE)) != 0
    share = np.where(recompute == Recompute.FULL, 1.0, np.where(half, 0.5, 0.0))
    base, again = np.zeros_like(tp), share * (launches_s / 3)
    whole, back = np.zeros_like(base), np.zeros_like(base)
    ranks_s = (tp - 1) * profile.host_rank_s
    if profile.pipeline_rank_s:
        ranks_s = ranks_s + np.where(np.asarray(pp) > 1, tp - 1, 0.0) * profile.pipeline_rank_s
    for row, (kind, number) in enumerate(zip(layer_kinds(context.model), layers, strict=True)):
        layers_launched = launched_share(kind, context.model.hidden, profile.graphed)
        routed = isinstance(kind.mlp, MixtureOfExperts) and kind.feeds_forward
        synchronised = 1.0 if kind.attends and kind.feeds_forward else 0.5
        each = layers_launched * launches_s + synchronised * ranks_s + (routed_s if routed else 0.0)
        base = base + number * each
        if kind.trains == "nothing":
            continue
        back = back + number * each
        left = 0.0 if spared is None else spared[row]
        whole = whole + layers_launched * (number - left)
    return base / 3, back * (2 / 3) + whole * again
