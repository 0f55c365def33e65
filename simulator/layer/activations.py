"""Bytes that one layer keeps for its backward pass, per microbatch and device.

Counted tensor by tensor as Korthikanti et al. (arXiv 2205.05198, section 4) do, for any attention, MLP and precision.
Tensors between the tensor-parallel blocks are whole on every tensor rank unless sequence parallel cuts them.
"""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.layer.operators import loss_vocab, padded_vocab
from forerun.simulator.layer.shard import EIGHT_BIT, Shard, activation_bytes, saved_input_bytes
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import Attention, Layer, MixtureOfExperts
from forerun.spaces.strategies import Context, Recompute

_MATERIALISED = ("unfused", "unfused_half", "fused_softmax")
"""Attention kernels that keep the score matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Bytes per layer, shape K each: ``kept`` from forward to backward; ``working`` what exists only while this layer's
    backward runs (the recomputed part)."""

    kept: Floats
    working: Floats


def layer_activations(context: Context, layer: Layer, shard: Shard) -> Activations:
    """Return what a layer keeps under each shard's recompute choice."""
    width, hidden = activation_bytes(context.workload.precision), context.model.hidden
    boundary = width * shard.inner_tokens * hidden
    between = _between_blocks(context, layer, shard)
    core = blocks = np.zeros_like(between)
    if layer.attends:
        core = _attention_core(context, layer.attention, shard)
        blocks = _attention_inputs(context, layer.attention, shard)
    if layer.feeds_forward:
        blocks = blocks + _mlp(context, layer, shard)
    if layer.cross_attention is not None and layer.attends:
        core = core + _attention_core(context, layer.cross_attention, shard)
        blocks = blocks + _attention_inputs(context, layer.cross_attention, shard)
    everything = between + core + blocks
    again = core
    if context.framework.selective == "products":
        again = np.maximum(everything - _every_second_product(context, layer, shard) - core - boundary, 0.0)
    full, selective = shard.recompute == Recompute.FULL, shard.recompute == Recompute.SELECTIVE
    kept = np.where(full, boundary, np.where(selective, everything - again, everything))
    working = np.where(full, everything, np.where(selective, again, 0.0))
    return Activations(kept=kept, working=working)


def _every_second_product(context: Context, layer: Layer, shard: Shard) -> Floats:
    """Outputs of the attention core and of every second matrix product from the first: queries, values, the first of
    the MLP, and with a gate its last (torchtitan's op-level checkpoints keep them whether read or not)."""
    width, hidden, heads = activation_bytes(context.workload.precision), context.model.hidden, layer.attention
    values = np.zeros_like(shard.tokens)
    if layer.attends:
        queries = heads.heads / shard.tp * (heads.head_dim + heads.value_head_dim)
        values = values + queries + np.maximum(heads.kv_heads / shard.tp, 1.0) * heads.value_head_dim
    total = width * shard.tokens * values
    mlp = layer.mlp
    if not layer.feeds_forward:
        return np.asarray(total)
    last = width * shard.inner_tokens * hidden if mlp.gated else 0.0
    if not isinstance(mlp, MixtureOfExperts):
        return np.asarray(total + width * shard.tokens * mlp.hidden / shard.tp + last)
    routed = shard.tokens / shard.tp * mlp.top_k * shard.etp * context.workload.moe_imbalance
    inner = routed * mlp.expert_hidden / shard.etp + shard.tokens * mlp.shared_hidden / shard.tp
    return np.asarray(total + width * inner + last)


def _between_blocks(context: Context, layer: Layer, shard: Shard) -> Floats:
    """Inputs of the norms and of the blocks (two tensors per norm), dropout masks of a byte where they are kept, and
    what an eager RMSNorm leaves behind (its input in fp32 and the normalised value)."""
    width, profile = activation_bytes(context.workload.precision), context.framework
    per_norm = width + saved_input_bytes(context.workload.precision) + (1.0 if profile.dropout else 0.0)
    if not layer.norm_bias and "rmsnorm" in profile.eager:
        per_norm += 4.0 + width
    return np.asarray(layer.norms * per_norm * shard.inner_tokens * context.model.hidden)


def gathered_buffers(context: Context, layer: Layer, shard: Shard) -> Floats:
    """Bytes of the activations that one layer gathers over tensor ranks for its blocks, per microbatch."""
    if not context.framework.keeps_gathered:
        return np.zeros_like(shard.tokens)
    whole = layer.norms * activation_bytes(context.workload.precision) * shard.tokens * context.model.hidden
    return np.where(shard.sp, whole, 0.0)


def _attention_inputs(context: Context, attention: Attention, shard: Shard) -> Floats:
    """Queries, keys, values and the core's output; its eight-bit copy besides, where the projection keeps one."""
    precision = context.workload.precision
    width = activation_bytes(precision)
    heads, kv_heads = attention.heads / shard.tp, np.maximum(attention.kv_heads / shard.tp, 1.0)
    if attention.latent is not None:
        kv_heads = heads
    values = heads * (attention.head_dim + attention.value_head_dim)
    values = values + kv_heads * (attention.head_dim + attention.value_head_dim)
    total = width * shard.tokens * values
    if precision in EIGHT_BIT:
        total = total + saved_input_bytes(precision) * shard.tokens * heads * attention.value_head_dim
    if attention.latent is not None:
        latent = attention.latent.key_value_rank + attention.latent.rope_head_dim + (attention.latent.query_rank or 0)
        total = total + 2 * width * shard.inner_tokens * latent
    return np.asarray(total)


def _attention_core(context: Context, attention: Attention, shard: Shard) -> Floats:
    """What the core keeps: log-sums for flash attention; else the softmax (in fp32 and cast, with its mask, where it is
    not fused), the dropped-out softmax and the dropout mask."""
    heads, width = attention.heads / shard.tp, activation_bytes(context.workload.precision)
    if context.attention not in _MATERIALISED:
        return np.asarray(4.0 * shard.tokens * heads)
    per_score = width + (width + 1 if context.framework.dropout else 0)
    per_score += 5.0 if context.attention == "unfused" else 0
    return np.asarray(per_score * shard.tokens * context.workload.seq_len * heads)


def _mlp(context: Context, layer: Layer, shard: Shard) -> Floats:
    """Inner tensors of the MLP: output of the first product, input of the second, and those of eager activations."""
    mlp, width, hidden = layer.mlp, activation_bytes(context.workload.precision), context.model.hidden
    eager = 1 if ("swiglu" if layer.mlp.gated else "gelu") in context.framework.eager else 0
    saved = saved_input_bytes(context.workload.precision)
    per_inner = width * ((2 if mlp.gated else 1) + eager) + saved
    if not isinstance(mlp, MixtureOfExperts):
        return np.asarray(per_inner * shard.tokens * mlp.hidden / shard.tp)
    routed = shard.tokens / shard.tp * mlp.top_k * shard.etp * context.workload.moe_imbalance
    total = routed * ((width + saved) * hidden + per_inner * mlp.expert_hidden / shard.etp)
    total = total + per_inner * shard.tokens * mlp.shared_hidden / shard.tp
    return np.asarray(total + 8.0 * shard.tokens / shard.tp * mlp.experts)


def embedding_activations(context: Context, shard: Shard) -> Floats:
    """Bytes that the embedding keeps per microbatch: its dropout mask, if any."""
    values = shard.inner_tokens * context.model.hidden
    return np.asarray(values if context.framework.dropout else np.zeros_like(values))


def head_activations(context: Context, shard: Shard) -> Floats:
    """Bytes around the loss, of one microbatch: inputs of final norm and head, logits, their fp32 copies."""
    model, width = context.model, activation_bytes(context.workload.precision)
    inputs = 2 * width * shard.inner_tokens * model.hidden
    if not model.vocab:
        return np.asarray(inputs)
    loss = context.framework.logit_bytes if "cross_entropy" in context.framework.eager else 0.0
    logits = shard.tokens * ((width + loss) * loss_vocab(context, shard.tp))
    if context.framework.gathered_logits:
        logits = logits + np.where(shard.tp > 1, shard.tokens * width * padded_vocab(model, shard.tp), 0.0)
    return np.asarray((inputs + logits) * (1 + model.mtp_layers))
