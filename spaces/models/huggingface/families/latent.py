"""Decoders with multi-head latent attention (DeepSeek-V2 and its descendants), most with routed experts."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.families.hybrids import kimi_delta
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
    kinds = fields.listed("indexer_types", str, length=fields.size("num_hidden_layers"))
    if kinds is None or kinds[index] == "full" or layer.attention.indexer is None:
        return layer
    return replace(layer, mixer=replace(layer.attention, indexer=replace(layer.attention.indexer, shared=True)))


def _v2_groups(fields: Fields, layer: Layer, index: int) -> Layer:
    """DeepSeek-V2: "greedy" looks at all experts, "group_limited_greedy" at those of the best groups."""
    from forerun.spaces.models.model import MixtureOfExperts

    if isinstance(layer.mlp, MixtureOfExperts) and fields.text("topk_method") != "group_limited_greedy":
        return replace(layer, mlp=replace(layer.mlp, groups=1, top_groups=1))
    return layer


def hyper_connections(fields: Fields) -> int:
    """Hyper-connections (arXiv 2409.19606): what mixes the streams around both blocks of a layer."""
    streams = fields.size("hc_mult")
    return 2 * ((2 + streams) * streams * (streams * fields.size("hidden_size") + 1) + 3)


_V32 = replace(_BIASED, experts=_V3, mixers={"indexed_attention": _indexed}, adjust=_without_indexer)


def _rotary_or_not(fields: Fields, layer: Layer, index: int) -> Layer:
    """Mistral Large 4: layers without positions have no rotary part; its width belongs to the rest of the head."""
    rotary = fields.listed("no_rope_layers", int, length=fields.size("num_hidden_layers"))
    latent = layer.attention.latent
    if latent is None or rotary is None or rotary[index]:
        return layer
    return replace(layer, mixer=replace(layer.attention, latent=replace(latent, rope_head_dim=0)))


def _pooled_keys(fields: Fields, layer: Layer, index: int) -> Layer:
    """GLM 5 Next: keys of the indexer are pooled, by a gate and a table of places in the pool."""
    if not isinstance(layer.mixer, Attention) or layer.mixer.indexer is None:
        return layer
    width = fields.size("index_head_dim")
    pool = width * (fields.size("index_kpool", 16) + fields.size("hidden_size"))
    return _without_indexer(fields, replace(layer, extra=layer.extra + pool), index)


TABLE: Mapping[str, Decoder] = MappingProxyType(
    {
        "axk1": replace(_BIASED, experts=_V3, extra=lambda f: f.size("hidden_size")),
        "deepseek_v2": replace(
            _BIASED, experts=Experts(grouped=True), adjust=_v2_groups, sizes={"num_experts_per_tok": 6}
        ),
        "deepseek_v3": replace(_BIASED, experts=_V3),
        "deepseek_v32": _V32,
        "glm4_moe_lite": replace(_BIASED, experts=_V3),
        "glm5_next_text": replace(
            _V32,
            mixers={"linear_attention": kimi_delta, "indexed_attention": _indexed},
            adjust=_pooled_keys,
            extra=hyper_connections,
            known=("hc_sinkhorn_iters", "index_kpool_always_select_tail", "linear_lower_bound"),
        ),
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
        "mistral_large4_text": replace(
            _V32,
            adjust=_rotary_or_not,
            extra=lambda f: 2 * f.size("hidden_size"),
            known=("kv_source_layers", "indexer_types"),
        ),
        "youtu": replace(_BIASED, tied=True, mlp_bias="mlp_bias"),
    }
)
"""Families by ``model_type``."""
