"""Limits on the model, which have no fix."""

import dataclasses
from collections.abc import Callable

from forerun.search.formats.contract import Launch, Limit
from forerun.search.formats.limits import folded, is_mixture
from forerun.spaces.models.model import Attention, MixtureOfExperts, Model


def _encoder_beside(model: Model) -> bool:
    """Whether the model has encoders of images or sound with separate tokens before a decoder with rotary positions."""
    layers = [layer for layer in model.layers if layer.mixer]
    is_encoder = [not layer.attention.causal and layer.tokens is not None for layer in layers]
    ordered = is_encoder == sorted(is_encoder, reverse=True)
    causal = all(layer.attention.causal for layer, in_encoder in zip(layers, is_encoder, strict=True) if not in_encoder)
    plain = not (model.encoder_layers or model.patch_inputs or model.learned_positions)
    return any(is_encoder) and not is_encoder[-1] and ordered and causal and plain


def recipes_of_decoders(framework: str) -> tuple[Limit, ...]:
    """Return the limits "the model is a decoder over tokens" and "one stage with encoders".

    Recipes build the encoder on the first stage and divide layers without it.
    """
    decoders = decoders_only(framework)
    return (
        Limit(
            broken=lambda launch: decoders.broken(launch) and not _encoder_beside(launch.model),
            reason=decoders.reason,
            fix=None,
        ),
        Limit(
            broken=lambda launch: launch.strategy.pp > 1 and _encoder_beside(launch.model),
            reason=lambda launch: (
                f"pp={launch.strategy.pp}: {framework} builds the encoder on the first stage and deals the layers of "
                "the decoder alone"
            ),
            fix=lambda launch: folded(launch, "pp"),
        ),
    )


def decoders_only(framework: str, *, hybrids: bool = False) -> Limit:
    """Return the limit "the model is a decoder over tokens", which has no fix.

    ``hybrids``: hybrids of any mixers are decoders, too.
    """

    def other(launch: Launch) -> bool:
        model = launch.model
        attending = [x for x in model.layers if (isinstance(x.mixer, Attention) if hybrids else x.mixer)]
        return bool(model.encoder_layers or model.patch_inputs or not all(x.attention.causal for x in attending))

    return Limit(
        broken=other,
        reason=lambda launch: f"{launch.model.name} is not a decoder over tokens, which is all {framework} builds here",
        fix=None,
    )


MISSING: dict[str, Callable[[Model], bool]] = {
    "experts": is_mixture,
    "latent attention": lambda model: model.layers[-1].attention.latent is not None,
    "layers of several kinds": lambda model: (
        len({dataclasses.replace(layer, name="", count=1) for layer in model.layers}) > 1
    ),
    "learned positions": lambda model: bool(model.learned_positions),
    "LayerNorm with biases": lambda model: model.layers[-1].norm_bias,
    "an MLP of two matrices": lambda model: not model.layers[-1].feed_forward.gated,
    "tied embeddings": lambda model: model.tied_embeddings,
    "biases": lambda model: model.layers[-1].attention.output_bias,
    "query and key norms": lambda model: model.layers[-1].attention.query_key_norm,
    "sliding windows": lambda model: any(layer.attention.window for layer in model.layers),
    "heads that are no share of the width": lambda model: (
        model.layers[-1].attention.heads * model.layers[-1].attention.head_dim != model.hidden
    ),
    "norms after blocks": lambda model: model.layers[-1].norms > 2,
    "shared experts": lambda model: any(mlp.shared_hidden for mlp in _mixtures(model)),
    "biases of router or experts": lambda model: any(mlp.router_bias or mlp.expert_bias for mlp in _mixtures(model)),
    "extra predictions": lambda model: bool(model.mtp_layers),
}
"""Parts of a model that a configuration may not be able to express."""


def _mixtures(model: Model) -> list[MixtureOfExperts]:
    return [layer.mlp for layer in model.layers if isinstance(layer.mlp, MixtureOfExperts)]


def builds(what: str, *without: str) -> Limit:
    """Return the limit "the model is a stack of attention and feed-forwards without parts of ``without``".

    ``without``: names of ``MISSING``. ``what``: description of the built model.
    """

    def lost(launch: Launch) -> str:
        layers = launch.model.layers
        if not all(isinstance(layer.mixer, Attention) and layer.mlp is not None for layer in layers):
            return "layers without softmax attention or feed-forward"
        return ", ".join(name for name in without if MISSING[name](launch.model))

    return Limit(
        broken=lambda launch: bool(lost(launch)),
        reason=lambda launch: f"{launch.model.name}: {what}, without {lost(launch)}",
        fix=None,
    )
