"""Operators of every block of a model: a layer by its mixer and feed-forward, the embedding, the head.

Shards have shape K; communication and launches are not included.
"""

import numpy as np

from forerun.simulator.layer.operators import Operators
from forerun.simulator.layer.shard import Shard, shard_of_layer
from forerun.simulator.layer.widths import loss_vocab, padded_vocab
from forerun.simulator.layer.work import Work
from forerun.spaces.models.model import FeedForward, Layer, MixtureOfExperts
from forerun.spaces.models.parameters import layer_parameters
from forerun.spaces.models.parts import ElementwisePass, Product
from forerun.spaces.strategies import Context, Recompute


def layer_work(context: Context, layer: Layer, shard: Shard) -> Work:
    """Return device seconds of one layer on one microbatch for K shards (communication and launches not included)."""
    return layer_operators(context, layer, shard).work


def layer_operators(context: Context, layer: Layer, shard: Shard) -> Operators:
    """Return the operators of one layer on one microbatch for K shards."""
    hidden = layer.width(context.model)
    shard = shard_of_layer(context, layer, shard)
    operators = Operators(context, shard, layer.tokens)
    operators.norms(layer, hidden)
    if layer.attends and layer.mixer is not None:
        operators.part = layer.mixer.name
        _add_mixer(operators, layer, hidden)
        if layer.cross_attention is not None:
            operators.part = "cross attention"
            keys = context.model.encoder_tokens(context.workload.seq_len)
            operators.steps(layer.cross_attention.steps(hidden), keys=float(keys))
    operators.part = "feed-forward"
    if layer.feeds_forward:
        if isinstance(layer.mlp, MixtureOfExperts):
            with operators.inside(Recompute.MOE):
                operators.mixture(layer.mlp, hidden)
        elif isinstance(layer.mlp, FeedForward):
            with operators.inside(Recompute.MLP):
                operators.steps(layer.mlp.steps(hidden))
            if stops_recompute(context, layer):
                operators.exclude_last_product()
    one = layer_parameters(layer, hidden)
    operators.accumulation(
        (one.mixer + one.mlp_dense) / shard.tp
        + one.router
        + one.replicated
        + one.experts_total / (shard.ep * shard.etp)
    )
    operators.keep_trained(layer.trains)
    if layer.trains == "adapters":
        operators.adapters(layer, hidden)
    return operators


def stops_recompute(context: Context, layer: Layer) -> bool:
    """Check whether full recomputation of a layer ends before its last product.

    That is the down-projection of a feed-forward without experts; a norm that follows it would need its output.
    """
    plain = isinstance(layer.mlp, FeedForward) and layer.feeds_forward and layer.norms <= 1 + layer.attends
    return context.framework.stops_recompute and plain


def _add_mixer(operators: Operators, layer: Layer, hidden: int) -> None:
    """Add the operators of a mixer; the up-projections and rotary embedding of latent attention are a module."""
    assert layer.mixer is not None
    steps = layer.mixer.steps(hidden)
    latent = getattr(layer.mixer, "latent", None) is not None
    for step in steps:
        up = isinstance(step, Product) and not step.own_tokens and step is not steps[-1]
        inside = latent and (up or (isinstance(step, ElementwisePass) and step.form == "rope"))
        with operators.inside(Recompute.MLA_UP_PROJ if inside else Recompute.NONE):
            operators.steps((step,))


def embedding_operators(context: Context, shard: Shard) -> Operators:
    """Return the operators before the first layer."""
    operators, model = Operators(context, shard), context.model
    if model.vocab:
        operators.stream("embedding", shard.tokens * model.hidden)
        operators.table_gradient(padded_vocab(model, shard.tp) * model.hidden)
    if model.patch_inputs:
        wide = np.full_like(shard.tp, model.hidden)
        operators.linear("patch product", shard.tokens, wide, np.full_like(shard.tp, model.patch_inputs))
    if "embedding" in model.frozen_ends:
        operators.keep_trained("nothing")
    return operators


def head_operators(context: Context, shard: Shard) -> Operators:
    """Return the operators after the last layer: norm, logits, loss; once more per predicted token (MTP)."""
    operators, model = Operators(context, shard), context.model
    half = operators.half_precision()
    wide = np.full_like(shard.tp, model.hidden)
    norm = "layernorm" if model.layers[-1].norm_bias else "rmsnorm"
    for _ in range(1 + model.mtp_layers):
        operators.stream(norm, shard.inner_tokens * model.hidden)
        if model.head_transform:
            operators.linear("head transform", shard.tokens, wide, wide, precision=half)
        if model.vocab:
            operators.linear(
                f"head product {model.hidden} -> {model.vocab}",
                shard.tokens,
                padded_vocab(model, shard.tp),
                wide,
                precision=half,
            )
            operators.stream("cross_entropy", shard.tokens * loss_vocab(context, shard.tp))
    if model.vocab:
        operators.accumulation(padded_vocab(model, shard.tp) * model.hidden)
    for _ in range(model.mtp_layers):
        operators.linear("MTP product", shard.tokens, wide / shard.tp, 2 * wide)
    if "head" in model.frozen_ends:
        operators.keep_trained("inputs")
    return operators
