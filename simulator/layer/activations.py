"""Bytes that one layer keeps for its backward pass, per microbatch and device.

Tensors are counted one by one as by Korthikanti et al. (arXiv 2205.05198, section 4), for any attention, MLP and
precision. Tensors between the tensor-parallel blocks are complete on every tensor rank unless sequence parallelism
shards them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.simulator.layer.eight_bit import EIGHT_BIT
from forerun.simulator.layer.shard import Shard, activation_bytes, saved_input_bytes, shard_of_layer
from forerun.simulator.layer.widths import local, locals_of, loss_vocab, padded_vocab
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import FeedForward, Layer, MixtureOfExperts
from forerun.spaces.models.parts import Kept, Product, Softmax, Step
from forerun.spaces.strategies import Context, Recompute
from forerun.spaces.strategies.framework_laws import separate_norms

_TWELVE_BIT = 1.5
"""Bytes of the attention's output in E5M6, which its own backward pass also reads (arXiv 2412.19437, section 3.3.3)."""
_MATERIALISED = ("unfused", "unfused_half", "fused_softmax")
"""Attention kernels that keep the score matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Bytes per layer, shape K each.

    ``kept``: from forward to backward; ``working``: only during this layer's backward pass (recomputed part and
    gradients); ``whole`` and ``gradients``: kept and working bytes without recompute.
    """

    kept: Floats
    working: Floats
    whole: Floats
    gradients: Floats


def layer_activations(context: Context, layer: Layer, shard: Shard) -> Activations:
    """Return the activations that a layer keeps under each shard's recompute choice."""
    width, hidden = activation_bytes(context.workload.precision), layer.width(context.model)
    shard = shard_of_layer(context, layer, shard)
    boundary = width * shard.inner_tokens * hidden
    between = _between_blocks(context, layer, shard, hidden)
    core = blocks = np.zeros_like(between)
    if layer.feeds_forward:
        blocks = _mlp(context, layer, shard, hidden)
    fed = blocks
    for mixer in (layer.mixer, layer.cross_attention):
        if mixer is not None and layer.attends:
            core = core + _cores(context, mixer.steps(hidden), shard, layer.tokens or context.workload.seq_len)
            blocks = blocks + _mixer(context, mixer.kept(hidden), shard)
    everything = between + core + blocks
    if layer.trains == "inputs":  # no product reads its input again
        everything = everything - _norm_outputs(context, layer, shard, hidden)
    again = core
    if context.framework.selective == "products":
        again = np.maximum(everything - _every_second_product(context, layer, shard, hidden) - core - boundary, 0.0)
    full = shard.recompute == Recompute.FULL
    up = np.zeros_like(between)
    if layer.attends and getattr(layer.mixer, "latent", None) is not None:
        up = _up_projected(context, layer, shard)

    def chosen(module: Recompute, size: Floats) -> Floats:
        return np.where(shard.recompute & module, size, 0.0)

    norms = chosen(Recompute.LAYERNORM, _norm_outputs(context, layer, shard, hidden))
    mixed = chosen(Recompute.SELECTIVE, again) + chosen(Recompute.MLA_UP_PROJ, up)
    if isinstance(layer.mlp, MixtureOfExperts) and layer.feeds_forward:
        act, shared = _parts_of_mixture(context, layer.mlp, shard)
        some = chosen(Recompute.MOE_ACT, act) + chosen(Recompute.SHARED_EXPERTS, shared)
        feeding = np.where(shard.recompute & Recompute.MOE, fed, some)
    else:
        feeding = chosen(Recompute.MLP, fed)
    # Modules of the mixer and of the feed-forward are recomputed at different times of a layer's backward pass.
    kept = np.where(full, boundary, everything - norms - mixed - feeding)
    working = np.where(full, everything, norms + np.maximum(mixed, feeding))
    gradients = _gradients(context, layer, shard, hidden)
    if layer.trains == "nothing":
        none = np.zeros_like(kept)
        return Activations(kept=none, working=everything, whole=none, gradients=everything)
    return Activations(kept=kept, working=working + gradients, whole=everything, gradients=gradients)


def _norm_outputs(context: Context, layer: Layer, shard: Shard, hidden: int) -> Floats:
    """Bytes of the outputs of separate norms before the blocks, with the intermediates of eager norms.

    Outputs have the precision in which the following products keep them.
    """
    per_norm = saved_input_bytes(context.workload.precision)
    if not layer.norm_bias and "rmsnorm" in context.eager:
        per_norm += 4.0 + activation_bytes(context.workload.precision)
    return np.asarray(separate_norms(context.framework, layer) * per_norm * shard.inner_tokens * hidden)


def _up_projected(context: Context, layer: Layer, shard: Shard) -> Floats:
    """Bytes of the queries, keys and values that latent attention computes from its latents."""
    attention = layer.attention
    widths = (attention.query_width, attention.key_width, attention.value_width)
    return np.asarray(activation_bytes(context.workload.precision) * shard.tokens * locals_of(widths, shard.tp))


def _parts_of_mixture(context: Context, mlp: MixtureOfExperts, shard: Shard) -> tuple[Floats, Floats]:
    """Bytes of the output of routed experts' activations, and of the inner tensors of shared experts."""
    width, saved = _inner_bytes(context), saved_input_bytes(context.workload.precision)
    eager = 1 if ("swiglu" if mlp.gated else "gelu") in context.eager else 0
    routed = shard.tokens / shard.tp * mlp.routed_copies * shard.etp * context.workload.moe_imbalance
    act = routed * (width * eager + saved) * mlp.expert_hidden / shard.etp
    per_inner = width * ((2 if mlp.gated else 1) + eager) + saved
    return np.asarray(act), np.asarray(per_inner * shard.tokens * mlp.shared_hidden / shard.tp)


def _every_second_product(context: Context, layer: Layer, shard: Shard, hidden: int) -> Floats:
    """Bytes of the outputs of attention cores and of every second matrix product of a layer, from the first on."""
    steps: list[Step] = []
    for mixer in (layer.mixer, layer.cross_attention):
        if mixer is not None and layer.attends:
            steps += mixer.steps(hidden)
    if layer.feeds_forward and isinstance(layer.mlp, FeedForward):
        steps += layer.mlp.steps(hidden)
    total, products = np.zeros_like(shard.tokens), 0
    # No backward pass reads the output of the last product: compilers drop it, eager checkpoints keep it.
    last = steps[-1] if steps and "rmsnorm" not in context.eager and layer.feeds_forward else None
    for step in steps:
        if isinstance(step, Softmax):
            total = total + shard.tokens * local(step.heads, shard.tp) * step.value_head_dim
        if not isinstance(step, Product):
            continue
        merged = context.framework.merged_products or step.blocks > 1
        for outputs in (step.outputs,) if merged else ((one,) for one in step.outputs):
            products += 1
            for width in outputs if products % 2 and step is not last else ():
                total = total + (shard.tokens if width.cut else shard.inner_tokens) * local(width, shard.tp)
    if layer.feeds_forward and isinstance(layer.mlp, MixtureOfExperts):
        mlp = layer.mlp
        routed = shard.tokens / shard.tp * mlp.routed_copies * shard.etp * context.workload.moe_imbalance
        total = total + routed * mlp.expert_hidden / shard.etp + shard.tokens * mlp.shared_hidden / shard.tp
    return np.asarray(activation_bytes(context.workload.precision) * total)


def _between_blocks(context: Context, layer: Layer, shard: Shard, hidden: int) -> Floats:
    """Bytes of inputs of norms and blocks, dropout masks and intermediates of eager RMSNorms.

    Every norm has two tensors, and a mask takes one byte per element where it is kept; the intermediates are the input
    in fp32 and the normalised value.
    """
    width, profile = activation_bytes(context.workload.precision), context.framework
    per_norm = width + saved_input_bytes(context.workload.precision) + (1.0 if profile.dropout else 0.0)
    if not layer.norm_bias and "rmsnorm" in context.eager:
        per_norm += 4.0 + width
    return np.asarray(layer.norms * per_norm * shard.inner_tokens * hidden)


def gathered_buffers(context: Context, layer: Layer, shard: Shard) -> Floats:
    """Bytes of the activations that one layer gathers over tensor ranks for its blocks, per microbatch."""
    if not context.framework.keeps_gathered:
        return np.zeros_like(shard.tokens)
    shard = shard_of_layer(context, layer, shard)
    whole = layer.norms * activation_bytes(context.workload.precision) * shard.tokens * layer.width(context.model)
    return np.where(shard.sp, whole, 0.0)


def _mixer(context: Context, kept: Kept, shard: Shard) -> Floats:
    """Bytes of the inner tensors of a mixer, with an 8-bit copy of its last product's input where one is kept."""
    precision = context.workload.precision
    width = activation_bytes(precision)
    total = width * shard.tokens * locals_of(kept.inner, shard.tp)
    if precision in EIGHT_BIT:
        # In twelve bit alone, or in half precision and cast.
        more = _TWELVE_BIT - width if context.framework.eight_bit_activations else saved_input_bytes(precision)
        total = total + more * shard.tokens * local(kept.last, shard.tp)
    return np.asarray(total + width * shard.inner_tokens * kept.own_columns)


def _cores(context: Context, steps: Sequence[Step], shard: Shard, seq_len: int) -> Floats:
    """Bytes that softmax cores keep; scans recompute their states.

    Flash attention keeps log-sums; other kernels keep the softmax (also in fp32 with its mask where it is not fused;
    one tensor where nothing is cast), the softmax after dropout and the dropout mask.
    """
    width, total = activation_bytes(context.workload.precision), np.zeros_like(shard.tokens)
    for step in steps:
        if not isinstance(step, Softmax):
            continue
        heads = local(step.heads, shard.tp)
        if context.attention not in _MATERIALISED:
            total = total + 4.0 * shard.tokens * heads
            continue
        per_score = width + (width + 1 if context.framework.dropout else 0)
        if context.attention == "unfused":
            per_score += 5.0 if width < 4.0 else 1.0
        total = total + per_score * shard.tokens * seq_len * heads
    return total


def _mlp(context: Context, layer: Layer, shard: Shard, hidden: int) -> Floats:
    """Bytes of the MLP's inner tensors: output of the first product, input of the second, eager intermediates."""
    mlp, width = layer.feed_forward, _inner_bytes(context)
    eager = 1 if ("swiglu" if mlp.gated else "gelu") in context.eager else 0
    saved = saved_input_bytes(context.workload.precision)
    per_inner = width * ((2 if mlp.gated else 1) + eager) + saved
    if not isinstance(mlp, MixtureOfExperts):
        return np.asarray(per_inner * shard.tokens * mlp.hidden / shard.tp)
    routed = shard.tokens / shard.tp * mlp.routed_copies * shard.etp * context.workload.moe_imbalance
    outputs = width if context.framework.keeps_expert_outputs else 0.0
    total = routed * ((outputs + saved) * mlp.width(hidden) + per_inner * mlp.expert_hidden / shard.etp)
    total = total + per_inner * shard.tokens * mlp.shared_hidden / shard.tp
    if mlp.latent:
        total = total + 2 * activation_bytes(context.workload.precision) * shard.inner_tokens * mlp.latent
    return np.asarray(total + 8.0 * shard.tokens / shard.tp * (mlp.experts + mlp.null_experts))


def _inner_bytes(context: Context) -> float:
    """Bytes of a value that the feed-forward keeps in addition to the inputs of its products."""
    precision = context.workload.precision
    eight = context.framework.eight_bit_activations and precision in EIGHT_BIT
    return 1.0 if eight else activation_bytes(precision)


def _gradients(context: Context, layer: Layer, shard: Shard, hidden: int) -> Floats:
    """Peak bytes of activation gradients during a layer's backward pass, less the activations freed before it.

    The peak is after the backward pass of the feed-forward's activation: the gradient of its input (twice as wide if
    gated), the gradient of its output in place of the kept output, and the gradient of the residual stream."""
    width = activation_bytes(context.workload.precision)
    residual = width * shard.inner_tokens * hidden
    mlp = layer.mlp if layer.feeds_forward else None
    if mlp is None:
        return np.asarray(residual)
    inner = width * (2 if mlp.gated else 1)
    if not isinstance(mlp, MixtureOfExperts):
        return np.asarray(residual + inner * shard.tokens * mlp.hidden / shard.tp)
    routed = shard.tokens / shard.tp * mlp.routed_copies * shard.etp * context.workload.moe_imbalance
    return np.asarray(residual + inner * routed * mlp.expert_hidden / shard.etp)


def embedding_activations(context: Context, shard: Shard) -> Floats:
    """Bytes that the embedding keeps per microbatch: its dropout mask, if any."""
    values = shard.inner_tokens * context.model.hidden
    return np.asarray(values if context.framework.dropout else np.zeros_like(values))


def head_activations(context: Context, shard: Shard) -> Floats:
    """Bytes around the loss, of one microbatch: inputs of final norm and head, and the larger of two moments.

    The moments are the logits with their fp32 copies, and the head's backward pass: gradient of the logits, gradient of
    the head's weights unless it is allocated anyway, the head's input gathered over tensor ranks, and the gradient of
    this input.
    """
    model, width = context.model, activation_bytes(context.workload.precision)
    inputs = 2 * width * shard.inner_tokens * model.hidden
    if not model.vocab:
        return np.asarray(inputs)
    loss = context.framework.logit_bytes if "cross_entropy" in context.eager else 0.0
    per_logit = width + loss + np.where(shard.tp > 1, context.framework.cut_logit_bytes, 0.0)
    logits = shard.tokens * (per_logit * loss_vocab(context, shard.tp))
    if context.framework.gathered_logits:
        logits = logits + np.where(shard.tp > 1, shard.tokens * width * padded_vocab(model, shard.tp), 0.0)
    rows = padded_vocab(model, shard.tp)
    if context.framework.chunked_loss:
        logits = logits / np.maximum(np.ceil(rows / model.hidden), 1.0)
        return np.asarray((inputs + logits + width * rows * model.hidden) * (1 + model.mtp_layers))
    if context.framework.dummy_gradients and "head" not in model.frozen_ends:
        wide = shard.tokens + np.where(shard.sp & (shard.tp > 1), shard.tokens, 0.0)
        logits = np.maximum(logits, width * (rows * shard.tokens + rows * model.hidden + wide * model.hidden))
    return np.asarray((inputs + logits) * (1 + model.mtp_layers))
