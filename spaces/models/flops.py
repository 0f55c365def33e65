"""Model FLOPs of training: the useful work of MFU."""

from forerun.spaces.models.model import FeedForward, Layer, MixtureOfExperts, Model
from forerun.spaces.models.parameters import (
    expert_matrices,
    mlp_matrices,
    shared_expert_matrices,
)
from forerun.spaces.models.parts import core_flops, matrices
from forerun.spaces.models.tuning import adapted_products

# Backward computes the gradients of input and weight of every matmul: twice the work of forward.
FORWARD_AND_BACKWARD = 3
PASSES = {"all": FORWARD_AND_BACKWARD, "adapters": 2, "inputs": 2, "nothing": 1}
"""Work of a layer in forward passes by its trained part: a frozen product has no weight gradient."""


def train_flops_per_sequence(
    model: Model, seq_len: int, *, causal_half: bool = False, document_tokens: float | None = None
) -> float:
    """Return the FLOPs of forward and backward of one sequence of ``seq_len`` tokens.

    Convention (Narayanan et al., arXiv 2104.04473, appendix, without recomputation): only matmuls count, a multiply-add
    is 2 FLOPs, backward is twice forward, logits count, a lookup is free. A mixture counts the ``top_k`` routed
    experts, the shared ones and the router. Each MTP block counts as one more layer, projection and pass through the
    head. Attention counts the entire ``seq_len x seq_len`` square even when causal, as in that paper;
    ``causal_half=True`` counts only the unmasked keys of causal attention. A window counts only its keys.
    In a sequence packed with documents of ``document_tokens`` a token attends only to the keys of its document. An
    untrained part has no weight gradient, and no backward pass if no trained layer precedes it (``Layer.trains``). An
    encoder-decoder model reads ``seq_len`` tokens on both sides; a classifier runs once per sequence.
    """
    hidden, adapters = model.hidden, 0.0
    layers = 0.0
    for layer in model.layers:
        once = layer_forward_flops(layer, hidden, seq_len, causal_half, document_tokens)
        layers += layer.count * once * PASSES[layer.trains]
        adapters += layer.count * _adapter_flops(layer, hidden, seq_len)
    logits = 2.0 * seq_len * hidden * model.vocab
    last = layer_forward_flops(model.layers[-1], hidden, seq_len, causal_half, document_tokens)
    forward = model.mtp_layers * (last + 2.0 * seq_len * 2 * hidden * hidden + logits)
    if model.head_transform:
        forward += 2.0 * seq_len * hidden * hidden
    forward += 2.0 * seq_len * model.patch_inputs * hidden + 2.0 * hidden * model.classes
    once = PASSES["inputs"] if "head" in model.frozen_ends else FORWARD_AND_BACKWARD
    return layers + FORWARD_AND_BACKWARD * (forward + adapters) + once * logits


def _adapter_flops(layer: Layer, hidden: int, seq_len: int) -> float:
    """Return the forward FLOPs of the adapters of one layer on one sequence."""
    if not layer.adapter_rank:
        return 0.0
    copies = layer.mlp.routed_copies if isinstance(layer.mlp, MixtureOfExperts) else 1.0
    each = sum((one.inputs + one.outputs) * (copies if one.routed else 1.0) for one in adapted_products(layer, hidden))
    return 2.0 * (layer.tokens or seq_len) * layer.adapter_rank * each


def layer_forward_flops(
    layer: Layer, hidden: int, seq_len: int, causal_half: bool = False, document_tokens: float | None = None
) -> float:
    """Return the forward FLOPs of one ``layer`` on one sequence, in the convention of ``train_flops_per_sequence``."""
    hidden, tokens = layer.hidden or hidden, layer.tokens or seq_len
    seen = tokens if layer.tokens or document_tokens is None else min(document_tokens, tokens)
    flops = 0.0
    mlp = layer.mlp
    if isinstance(mlp, FeedForward):
        flops += 2.0 * tokens * mlp_matrices(mlp, hidden)
    elif mlp is not None:
        routed = mlp.routed_copies * expert_matrices(mlp, hidden) + shared_expert_matrices(mlp, hidden)
        routed += (mlp.experts + mlp.null_experts) * hidden + (hidden if mlp.shared_gate else 0)
        flops += 2.0 * tokens * (routed + matrices(mlp.latent_products(hidden))[1])
    for mixer in (layer.mixer, layer.cross_attention):
        if mixer is not None:
            steps = mixer.steps(hidden)
            flops += tokens * (2.0 * sum(matrices(steps)) + core_flops(steps, seen, causal_half))
    return flops
