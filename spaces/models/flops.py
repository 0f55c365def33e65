"""Model FLOPs of training: the useful work by which MFU is measured."""

from forerun.spaces.models.model import Attention, FeedForward, Layer, Model
from forerun.spaces.models.parameters import (
    attention_matrices,
    expert_matrices,
    mlp_matrices,
    shared_expert_matrices,
)

# Backward computes the gradient of the input and of the weight of every matmul: twice the work of forward.
FORWARD_AND_BACKWARD = 3


def train_flops_per_sequence(model: Model, seq_len: int, *, causal_half: bool = False) -> float:
    """FLOPs of forward and backward of one sequence of ``seq_len`` tokens.

    Convention (Narayanan et al., arXiv 2104.04473, appendix, less its recomputation): matmuls only, a multiply-add is
    2 FLOPs, backward is twice forward, nothing recomputed, logits included, a lookup is free. A mixture counts the
    ``top_k`` routed experts, the shared ones and the router. Each MTP block is one more layer, projection and pass
    through the head. Attention counts the whole ``seq_len x seq_len`` square even when causal, as that paper does;
    ``causal_half=True`` counts only the unmasked keys of causal attention. A window counts the window.
    An encoder-decoder model reads ``seq_len`` tokens on either side; a classifier runs once per sequence.
    """
    hidden = model.hidden
    forward = sum(layer.count * layer_forward_flops(layer, hidden, seq_len, causal_half) for layer in model.layers)
    logits = 2.0 * seq_len * hidden * model.vocab
    last = layer_forward_flops(model.layers[-1], hidden, seq_len, causal_half)
    forward += model.mtp_layers * (last + 2.0 * seq_len * 2 * hidden * hidden + logits)
    if model.head_transform:
        forward += 2.0 * seq_len * hidden * hidden
    forward += 2.0 * seq_len * model.patch_inputs * hidden + 2.0 * hidden * model.classes
    return FORWARD_AND_BACKWARD * (forward + logits)


def layer_forward_flops(layer: Layer, hidden: int, seq_len: int, causal_half: bool = False) -> float:
    """Forward FLOPs of one ``layer`` on one sequence, in the convention of ``train_flops_per_sequence``."""
    mlp = layer.mlp
    if isinstance(mlp, FeedForward):
        matrices = mlp_matrices(mlp, hidden)
    else:
        matrices = mlp.top_k * expert_matrices(mlp, hidden) + shared_expert_matrices(mlp, hidden)
        matrices += mlp.experts * hidden + (hidden if mlp.shared_gate else 0)
    flops = 2.0 * seq_len * matrices + _attention_flops(layer.attention, hidden, seq_len, causal_half)
    if layer.cross_attention is not None:
        flops += _attention_flops(layer.cross_attention, hidden, seq_len, causal_half)
    return flops


def mean_keys(attention: Attention, seq_len: int, causal_half: bool) -> float:
    """Keys that a query is counted to meet, averaged over the sequence."""
    keys = float(seq_len if attention.window is None else min(attention.window, seq_len))
    if causal_half and attention.causal:
        # The first `keys` queries see half as many on average, the others see all of their window.
        return keys - keys * keys / (2 * seq_len)
    return keys


def _attention_flops(attention: Attention, hidden: int, seq_len: int, causal_half: bool) -> float:
    keys = mean_keys(attention, seq_len, causal_half)
    core = 2.0 * seq_len * keys * attention.heads * (attention.head_dim + attention.value_head_dim)
    return 2.0 * seq_len * sum(attention_matrices(attention, hidden)) + core
