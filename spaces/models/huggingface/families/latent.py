"""Decoders with multi-head latent attention (DeepSeek-V2 and its descendants), most with routed experts."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.mixtures import Experts
from forerun.spaces.models.mixers import Attention
from forerun.spaces.models.model import Layer
from forerun.spaces.models.parts import Mixer

_BIASED = Decoder(query_key_value_bias="attention_bias", output_bias="attention_bias")
# Balanced by a bias per expert, not by a loss (arXiv 2412.19437, section 2.1.2); transformers keeps it in a buffer.
_V3 = Experts(grouped=True, router_bias=True)


def _indexed(fields: Fields, attention: Attention) -> Mixer:
    return attention


def _without_indexer(fields: Fields, layer: Layer, index: int) -> Layer:
    """Layers whose indexer is another layer's have none of their own."""
    kinds = fields.listed("indexer_types", str)
    if kinds is None or kinds[index] == "full" or layer.attention.indexer is None:
        return layer
    return replace(layer, mixer=replace(layer.attention, indexer=replace(layer.attention.indexer, shared=True)))


def _v2_groups(fields: Fields, layer: Layer, index: int) -> Layer:
    """DeepSeek-V2: "greedy" looks at all experts, "group_limited_greedy" at those of the best groups."""
    from forerun.spaces.models.model import MixtureOfExperts

    if isinstance(layer.mlp, MixtureOfExperts) and fields.text("topk_method") != "group_limited_greedy":
        return replace(layer, mlp=replace(layer.mlp, groups=1, top_groups=1))
    return layer


_V32 = replace(_BIASED, experts=_V3, mixers={"indexed_attention": _indexed}, adjust=_without_indexer)

TABLE: Mapping[str, Decoder] = MappingProxyType(
    {
        "axk1": replace(_BIASED, experts=_V3, extra=lambda f: f.size("hidden_size")),
        "deepseek_v2": replace(
            _BIASED, experts=Experts(grouped=True), adjust=_v2_groups, sizes={"num_experts_per_tok": 6}
        ),
        "deepseek_v3": replace(_BIASED, experts=_V3),
        "deepseek_v32": _V32,
        "glm4_moe_lite": replace(_BIASED, experts=_V3),
        "glm_moe_dsa": _V32,
        "hy_v4": replace(
            _V32,
            gate="width",
            sinks=True,
            known=("hc_magnitude",),
            extra=lambda f: 2 * (2 * f.size("hc_mult") * (f.size("hc_mult") * f.size("hidden_size") + 1) + 2),
            extra_once=lambda f: f.size("hc_mult") * (f.size("hc_mult") * f.size("hidden_size") + 1) + 1,
        ),
        "kimi_k2": replace(_BIASED, experts=_V3),
        "minicpm3": replace(_BIASED, mlp_bias="mlp_bias"),
        "mistral4": replace(_BIASED, experts=_V3),
        "youtu": replace(_BIASED, tied=True, mlp_bias="mlp_bias"),
    }
)
"""Families by ``model_type``."""
