"""Changes of single decoder layers, in families whose layers differ by more than their mixer.

A rule receives the fields of the configuration, the common layer, and its index. Tables name the rules.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from forerun.spaces.models.huggingface import mixtures
from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields
from forerun.spaces.models.huggingface.mixtures import Experts
from forerun.spaces.models.mixers import Attention
from forerun.spaces.models.model import FeedForward, Layer, MixtureOfExperts
from forerun.spaces.models.shapes import check_heads

LayerRule: TypeAlias = Callable[[Fields, Layer, int], Layer]
"""Function that changes one layer, given its number."""


def _dense(layer: Layer, hidden: int) -> Layer:
    """Replace the experts of a layer by a dense feed-forward."""
    return replace(layer, name=layer.name.replace("moe", "dense"), mlp=FeedForward(hidden=hidden, gated=True))


def _mpt_checks(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of MPT: LayerNorms have only a weight; no other operator has a bias."""
    fields.accept("no_bias", "learned_pos_emb", "norm_type", "embedding_fraction")
    if not fields.flag("no_bias", True):
        raise fields.refusal("no_bias", "a model with biases is not modelled")
    fields.raw("attn_config")
    return layer


def _llama4_experts(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of Llama 4: one shared expert with the routed ones; dense layers have a different width."""
    listed = fields.listed("moe_layers", int)
    step = fields.size("interleave_moe_layer_step", 1)
    sparse = index in listed if listed is not None else (index + 1) % step == 0
    if not sparse or not isinstance(layer.mlp, MixtureOfExperts):
        return _dense(layer, fields.size("intermediate_size_mlp"))
    return replace(layer, mlp=replace(layer.mlp, shared_hidden=layer.mlp.expert_hidden))


def _laguna_heads(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of Laguna: query heads may differ by layer; ``gating`` adds one gate column per head."""
    heads, attention = fields.of_layer("num_attention_heads_per_layer", index), layer.attention
    if heads is not None:
        check_heads(fields.source, heads, attention.kv_heads)
        attention = replace(attention, heads=heads)
    gate = attention.heads if fields.flag("gating", False) else 0
    return replace(layer, mixer=replace(attention, gate=gate))


def _mimo_value_width(fields: Fields, layer: Layer, index: int) -> Layer:
    return replace(layer, mixer=replace(layer.attention, value_head_dim=fields.size("v_head_dim")))


def _jetmoe_attention_experts(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of JetMoE: query and output projections are also experts (mixture of attention heads)."""
    # A token uses ``num_experts_per_tok`` of them; the others are counted as parameters only.
    mixture, hidden = layer.feed_forward, fields.size("hidden_size")
    assert isinstance(mixture, MixtureOfExperts)
    width = fields.size("head_dim") * fields.size("num_key_value_heads")
    idle = 2 * hidden * width * (mixture.experts - mixture.top_k)
    return replace(layer, extra=idle + mixture.experts * hidden + 2 * hidden)


def _step_experts(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of Step 3.5: listed layers have experts; the shared expert has a different width."""
    listed = fields.raw("moe_layers_enum")
    sparse = {one.strip() for one in listed.split(",")} if isinstance(listed, str) else None
    if not isinstance(layer.mlp, MixtureOfExperts):
        return layer
    if sparse is not None and str(index) not in sparse:
        return _dense(layer, fields.size("intermediate_size"))
    return replace(layer, mlp=replace(layer.mlp, shared_hidden=fields.size("share_expert_dim")))


def _ernie_image_experts(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of ERNIE 4.5 VL: equally many narrower experts with a separate router for image tokens."""
    widths = fields.listed_or_none("moe_intermediate_size", int)
    if not isinstance(layer.mlp, MixtureOfExperts) or widths is None or len(widths) < 2:
        return _ernie_dense_end(fields, layer, index)
    experts, hidden = layer.mlp.experts, fields.size("hidden_size")
    mlp = replace(layer.mlp, unvisited=experts * sum(widths[1:]), router_extra=experts * (hidden + 1))
    return _ernie_dense_end(fields, replace(layer, mlp=mlp), index)


def _ernie_dense_end(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of ERNIE 4.5: layers after ``moe_layer_end_index`` are dense."""
    last = fields.raw("moe_layer_end_index")
    if not isinstance(last, int) or last < 0 or index <= last:
        return layer
    return replace(layer, mlp=FeedForward(hidden=fields.size("intermediate_size"), gated=True))


def _muse_narrow_experts(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of Muse Spark: experts read and write a narrower vector, with norms around them."""
    if not isinstance(layer.mlp, MixtureOfExperts):
        return layer
    narrow = fields.size("moe_hidden_size")
    return replace(layer, mlp=replace(layer.mlp, latent=narrow, router_extra=2 * narrow))


def _deepseek_v2_groups(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of DeepSeek-V2: only "group_limited_greedy" limits routing to the best groups."""
    if isinstance(layer.mlp, MixtureOfExperts) and fields.text("topk_method") != "group_limited_greedy":
        return replace(layer, mlp=replace(layer.mlp, groups=1, top_groups=1))
    return layer


def _deepseek_v4_experts(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of DeepSeek-V4: every layer has experts; the first few choose them by a hash of the token."""
    if isinstance(layer.mlp, MixtureOfExperts):
        return layer
    return replace(layer, name=layer.name.replace("dense", "moe"), mlp=mixtures.mixture(fields, Experts()))


def _shared_indexers(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of DeepSeek-V3.2: some layers use another layer's indexer."""
    kinds = fields.listed("indexer_types", str, length=fields.size("num_hidden_layers"))
    if kinds is None or kinds[index] == "full" or layer.attention.indexer is None:
        return layer
    return replace(layer, mixer=replace(layer.attention, indexer=replace(layer.attention.indexer, shared=True)))


def _glm_pooled_keys(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of GLM 5 Next: keys of the indexer are pooled, by a gate and a table of positions in the pool."""
    if not isinstance(layer.mixer, Attention) or layer.mixer.indexer is None:
        return layer
    pool = fields.size("index_head_dim") * (fields.size("index_kpool", 16) + fields.size("hidden_size"))
    return _shared_indexers(fields, replace(layer, extra=layer.extra + pool), index)


def _mistral_layers_without_rotary(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of Mistral Large 4: a layer without positions has no rotary part."""
    rotary = fields.listed("no_rope_layers", int, length=fields.size("num_hidden_layers"))
    latent = layer.attention.latent
    if latent is None or rotary is None or rotary[index]:
        return layer
    return replace(layer, mixer=replace(layer.attention, latent=replace(latent, rope_head_dim=0)))


def _dots_latent_per_layer(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of dots3.note: ``per_layer_config`` sets heads and rank; other layers have an indexer."""
    settings = fields.of_one_layer("per_layer_config", index)
    attention = layer.attention
    latent = attention.latent
    if latent is None or not settings.values:
        return layer
    heads = settings.size("num_attention_heads", attention.heads)
    nope = settings.size("qk_nope_head_dim", attention.head_dim - latent.rope_head_dim)
    attention = replace(
        attention,
        heads=heads,
        kv_heads=heads,
        gate=heads,
        head_dim=nope + latent.rope_head_dim,
        latent=replace(latent, key_value_rank=settings.size("kv_lora_rank", latent.key_value_rank)),
        indexer=None,
    )
    return replace(layer, mixer=attention)


def _lfm3_norms_and_gate(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of LFM3: norms also after the blocks, and a gate per head, if configured."""
    norms = 4 if fields.flag("use_sandwich_norm", False) else 2
    if isinstance(layer.mixer, Attention) and fields.flag("use_attention_gate", False):
        layer = replace(layer, mixer=replace(layer.mixer, gate=layer.mixer.heads))
    return replace(layer, norms=norms)


def _gemma3n_layers(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of Gemma 3n: a feed-forward width per layer; the last layers read an earlier layer's keys."""
    width = fields.of_layer("intermediate_size", index)
    if width is not None:
        layer = replace(layer, mlp=FeedForward(hidden=width, gated=True))
    return _shared_keys(fields, layer, index)


def _shared_keys(fields: Fields, layer: Layer, index: int) -> Layer:
    shared = fields.optional_size("num_kv_shared_layers", least=0) or 0
    if index < fields.size("num_hidden_layers", most=MOST_LAYERS) - shared:
        return layer
    return replace(layer, mixer=replace(layer.attention, shared_keys=True))


def _gemma4_layers(fields: Fields, layer: Layer, index: int) -> Layer:
    """Change a layer of Gemma 4: full layers have a different head width, and may take values from keys."""
    settings = fields.of_one_layer("per_layer_config", index)
    attention, full = layer.attention, layer.attention.window is None
    wide = settings.optional_size("head_dim") or (fields.optional_size("global_head_dim") if full else None)
    if wide:
        attention = replace(attention, head_dim=wide, value_head_dim=wide)
    if full and fields.flag("attention_k_eq_v", False):
        keys = fields.optional_size("num_global_key_value_heads") or attention.kv_heads
        attention = replace(attention, kv_heads=keys, shared_values=True)
    return _shared_keys(fields, replace(layer, mixer=attention), index)


LAYER_RULES: Mapping[str, LayerRule] = MappingProxyType(
    {
        rule.__name__.removeprefix("_"): rule
        for rule in (
            _deepseek_v2_groups,
            _deepseek_v4_experts,
            _dots_latent_per_layer,
            _ernie_dense_end,
            _ernie_image_experts,
            _gemma3n_layers,
            _gemma4_layers,
            _glm_pooled_keys,
            _jetmoe_attention_experts,
            _laguna_heads,
            _lfm3_norms_and_gate,
            _llama4_experts,
            _mimo_value_width,
            _mistral_layers_without_rotary,
            _mpt_checks,
            _muse_narrow_experts,
            _shared_indexers,
            _step_experts,
        )
    }
)
"""Rules by their names in the tables."""
