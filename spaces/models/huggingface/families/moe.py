"""Decoders with routed experts in some or all layers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.families.dense import HUNYUAN
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.layer_types import (
    CHUNKED,
    FULL,
    SLIDING,
    all_sliding,
    alternating,
    by_numbers,
    every,
    qwen,
)
from forerun.spaces.models.huggingface.mixtures import Experts
from forerun.spaces.models.mixers import Attention, Indexer
from forerun.spaces.models.model import FeedForward, Layer, MixtureOfExperts, Model
from forerun.spaces.models.parts import Mixer
from forerun.spaces.models.shapes import check_heads

_BIASED = Decoder(query_key_value_bias="attention_bias", output_bias="attention_bias")
_LLAMA = replace(_BIASED, mlp_bias="mlp_bias")
QWEN3 = replace(_BIASED, query_key_norm=True, types=qwen, known=("use_qk_norm", "qkv_bias"))


def _llama4_types(fields: Fields, count: int) -> list[str]:
    interval = fields.optional_size("no_rope_layer_interval") or 4
    return [CHUNKED if (index + 1) % interval else FULL for index in range(count)]


def _llama4(fields: Fields, layer: Layer, index: int) -> Layer:
    """One shared expert beside the routed ones; dense layers have a width of their own."""
    listed = fields.listed("moe_layers", int)
    step = fields.size("interleave_moe_layer_step", 1)
    sparse = index in listed if listed is not None else (index + 1) % step == 0
    if not sparse or not isinstance(layer.mlp, MixtureOfExperts):
        return replace(layer, name=layer.name.replace("moe", "dense"), mlp=_dense_llama4(fields))
    return replace(layer, mlp=replace(layer.mlp, shared_hidden=layer.mlp.expert_hidden))


def _dense_llama4(fields: Fields) -> FeedForward:
    return FeedForward(hidden=fields.size("intermediate_size_mlp"), gated=True)


def _laguna(fields: Fields, layer: Layer, index: int) -> Layer:
    """Layers may differ in their query heads; a gate with one column per head where ``gating``."""
    heads, attention = fields.of_layer("num_attention_heads_per_layer", index), layer.attention
    if heads is not None:
        check_heads(fields.source, heads, attention.kv_heads)
        attention = replace(attention, heads=heads)
    gate = attention.heads if fields.flag("gating", False) else 0
    return replace(layer, mixer=replace(attention, gate=gate))


def _mimo(fields: Fields, attention: Attention) -> Mixer:
    """Windowed layers have key heads of their own, and sinks."""
    own = fields.optional_size("swa_num_key_value_heads") or 2 * attention.kv_heads
    sinks = fields.flag("add_swa_attention_sink_bias", True)
    return replace(attention, kv_heads=own, sinks=sinks, window=fields.size("sliding_window"))


def _mimo_values(fields: Fields, layer: Layer, index: int) -> Layer:
    return replace(layer, mixer=replace(layer.attention, value_head_dim=fields.size("v_head_dim")))


def _minimax_m3(fields: Fields, attention: Attention) -> Mixer:
    """Blocks of keys chosen by an indexer with one key per group of heads."""
    blocks, size = fields.size("index_topk_blocks"), fields.size("index_block_size")
    indexer = Indexer(heads=fields.size("index_n_heads"), head_dim=fields.size("index_head_dim"), top_k=blocks * size)
    return replace(attention, indexer=indexer)


def _m3_width(fields: Fields, hidden: int) -> int:
    return fields.size("dense_intermediate_size")


def _jetmoe(fields: Fields, layer: Layer, index: int) -> Layer:
    """Query and output projections are experts too (mixture of attention heads): as many copies as experts, of which a
    token uses ``num_experts_per_tok``. Counted as parameters; their products are those of the chosen heads."""
    mixture, hidden = layer.feed_forward, fields.size("hidden_size")
    assert isinstance(mixture, MixtureOfExperts)
    width = fields.size("head_dim") * fields.size("num_key_value_heads")
    idle = 2 * hidden * width * (mixture.experts - mixture.top_k)
    return replace(layer, extra=idle + mixture.experts * hidden + 2 * hidden)


def _step(fields: Fields, layer: Layer, index: int) -> Layer:
    """Step 3.5: listed layers have experts; the shared one has a width of its own."""
    listed = fields.raw("moe_layers_enum")
    sparse = {one.strip() for one in listed.split(",")} if isinstance(listed, str) else None
    if not isinstance(layer.mlp, MixtureOfExperts):
        return layer
    if sparse is not None and str(index) not in sparse:
        dense = FeedForward(hidden=fields.size("intermediate_size"), gated=True)
        return replace(layer, name=layer.name.replace("moe", "dense"), mlp=dense)
    return replace(layer, mlp=replace(layer.mlp, shared_hidden=fields.size("share_expert_dim")))


def _step_window(fields: Fields, attention: Attention) -> Mixer:
    """Step 3.5: windowed layers have a number of heads of their own."""
    other = fields.raw("attention_other_setting")
    given = other.get("num_attention_heads") if isinstance(other, Mapping) else None
    heads = given if isinstance(given, int) else fields.optional_size("num_sliding_attention_heads")
    heads = attention.heads if heads is None else heads
    check_heads(fields.source, heads, attention.kv_heads)
    return replace(attention, heads=heads, gate=heads, window=fields.size("sliding_window"))


STEP = Decoder(
    query_key_norm=True,
    gate="head",
    mixers={SLIDING: _step_window},
    adjust=_step,
    known=(
        "share_expert_dim", "num_sliding_attention_heads", "per_layer_config", "attention_other_setting",
        "moe_every_n_layer", "moe_layers_enum", "need_fp32_gate", "use_moe_router_bias", "use_head_wise_attn_gate",
        "use_qk_norm", "use_rope_layers", "swiglu_limits", "swiglu_limits_shared", "zero_centered",
        "yarn_only_types", "moe_layer_offset", "use_moe",
    ),
)  # fmt: skip


def _for_images(fields: Fields, layer: Layer, index: int) -> Layer:
    """ERNIE 4.5 VL: as many narrower experts with a router of their own for the tokens of images."""
    widths = fields.listed_or_none("moe_intermediate_size", int)
    if not isinstance(layer.mlp, MixtureOfExperts) or widths is None or len(widths) < 2:
        return _ernie_end(fields, layer, index)
    experts, hidden = layer.mlp.experts, fields.size("hidden_size")
    mlp = replace(layer.mlp, unvisited=experts * sum(widths[1:]), router_extra=experts * (hidden + 1))
    return _ernie_end(fields, replace(layer, mlp=mlp), index)


def _ernie_end(fields: Fields, layer: Layer, index: int) -> Layer:
    """Layers after ``moe_layer_end_index`` are dense."""
    last = fields.raw("moe_layer_end_index")
    if not isinstance(last, int) or last < 0 or index <= last:
        return layer
    return replace(layer, mlp=FeedForward(hidden=fields.size("intermediate_size"), gated=True))


def _narrow_experts(fields: Fields, layer: Layer, index: int) -> Layer:
    """Muse Spark: experts read and write a narrower vector, with norms around them."""
    if not isinstance(layer.mlp, MixtureOfExperts):
        return layer
    narrow = fields.size("moe_hidden_size")
    return replace(layer, mlp=replace(layer.mlp, latent=narrow, router_extra=2 * narrow))


_ERNIE = Decoder(
    tied=True,
    query_key_value_bias="use_bias",
    output_bias="use_bias",
    mlp_bias="use_bias",
    experts=Experts(router_bias=True, from_last=True),
    known=("moe_capacity", "moe_use_aux_free", "moe_layer_end_index"),
    adjust=_ernie_end,
)
# As ERNIE 4.5 VL was released: its text model's fields beside those of the image's positions and of routing.
_RELEASED_VL = (
    *("compression_ratio", "freq_allocation", "moe_capacity", "moe_layer_end_index", "moe_norm_gate_logits"),
    *("moe_dense_experts_token_type_id", "moe_multimodal_dispatch_use_allgather", "moe_use_aux_free"),
    *("moe_use_hard_gate", "moe_use_token_type_bias", "rope_3d", "scale_qk_coeff", "sinkhorn_2gate"),
    *("sinkhorn_temp", "spatial_conv_size", "temporal_conv_size", "use_correction_bias", "use_temporal_conv"),
    *("pixel_hidden_size", "moe_group_experts", "use_recompute"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """A decoder whose configuration nests sizes of ``parts`` (DBRX: attention, feed-forward)."""

    decoder: Decoder
    parts: tuple[str, ...]

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``."""
        for part in self.parts:
            inner = fields.raw(part)
            if isinstance(inner, Mapping):  # the width is the model's, the type is empty
                fields.values |= {
                    key: value for key, value in inner.items() if key not in ("hidden_size", "model_type")
                }
        return self.decoder.read(fields, name)


_MUSE = ("output_multiplier", "qk_scale_factor", "residual_gate_temperature")

TABLE: Mapping[str, Decoder | Nested] = MappingProxyType(
    {
        "afmoe": Decoder(norms=4, query_key_norm=True, gate="width", types=every(("global_attn_every_n_layers",), 4)),
        "aria_text": replace(_BIASED, mlp_bias="mlp_bias"),
        "beam": replace(_BIASED, norms=4, query_key_norm=True, gate="width"),
        "cohere2_moe": replace(
            _BIASED,
            tied=True,
            norms=1,
            types=every(("sliding_window_pattern",), 4),
            known=("prefix_dense_sliding_window_pattern",),
        ),
        "dbrx": Nested(
            decoder=Decoder(
                experts=Experts(width="ffn_hidden_size"),
                known=("moe_normalize_expert_weights", "uniform_expert_assignment", "moe_loss_weight"),
            ),
            parts=("attn_config", "ffn_config"),
        ),
        "dots1": replace(_BIASED, query_key_norm=True, types=qwen),
        "doge": replace(
            _BIASED,
            query_key_norm=True,
            experts=None,
            mlp_bias="mlp_bias",
            extra=lambda f: (2 + f.size("num_attention_heads")) * f.size("hidden_size"),
            known=("keep_window_size", "num_experts", "num_experts_per_tok"),
        ),
        "ernie4_5": Decoder(tied=True, query_key_value_bias="use_bias", output_bias="use_bias", mlp_bias="use_bias"),
        "ernie4_5_moe": _ERNIE,
        "ernie4_5_vl_moe_text": replace(_ERNIE, adjust=_for_images, known=_RELEASED_VL),
        "exaone_moe": Decoder(query_key_norm=True, types=every(("sliding_window_pattern",), 4)),
        "flex_olmo": replace(_BIASED, query_key_norm=True, norm_width="width"),
        "flint": replace(_BIASED, query_key_norm=True, sinks=True),
        "glm4_moe": Decoder(
            floor_heads=True,
            query_key_value_bias="attention_bias",
            query_key_norm="use_qk_norm",
            experts=Experts(grouped=True, router_bias=True),
        ),
        "gpt_oss": replace(
            _BIASED,
            sinks=True,
            types=alternating,
            sizes={"head_dim": 64},
            experts=Experts(router_bias=True, expert_bias=True),
        ),
        "granitemoe": replace(_BIASED, tied=True),
        "granitemoe_swa": replace(_BIASED, tied=True, sinks=True),
        "granitemoeshared": replace(_BIASED, tied=True),
        "hunyuan_v1_moe": HUNYUAN,
        "hy_v3": replace(_LLAMA, query_key_norm=True),
        "jetmoe": Decoder(tied=True, adjust=_jetmoe),
        "laguna": replace(_BIASED, query_key_norm=True, experts=Experts(router_bias=True), adjust=_laguna),
        "llama4_text": replace(
            _BIASED,
            types=_llama4_types,
            adjust=_llama4,
            known=("use_qk_norm", "intermediate_size_mlp"),
            experts=Experts(width="intermediate_size"),
        ),
        "mellum": replace(_BIASED, query_key_norm=True),
        "mimo_v2_flash": replace(
            _BIASED,
            mixers={SLIDING: _mimo},
            adjust=_mimo_values,
            experts=Experts(grouped=True),
            types=by_numbers("hybrid_layer_pattern", {0: FULL, 1: SLIDING}, every((), 6)),
            known=(
                "hybrid_layer_pattern",
                "swa_num_attention_heads",
                "swa_num_key_value_heads",
                "swa_head_dim",
                "swa_v_head_dim",
                "add_swa_attention_sink_bias",
                "add_full_attention_sink_bias",
                "attention_chunk_size",
            ),
        ),
        "minimax_m2": Decoder(
            query_key_norm=True,
            norm_width="width",
            experts=Experts(width="intermediate_size", router_bias=True),
            types=by_numbers("attn_type_list", {1: FULL}, lambda fields, count: [FULL] * count),
            known=(
                "qk_norm_type",
                "use_qk_norm",
                "attn_type_list",
                "mtp_transformer_layers",
                "mlp_intermediate_size",
                "use_mtp",
                "max_model_len",
                "layernorm_full_attention_beta",
                "layernorm_linear_attention_beta",
                "layernorm_mlp_beta",
            ),
        ),
        "minimax_m3_vl_text": Decoder(
            known=(
                "dense_intermediate_size",
                "index_topk_blocks",
                "index_block_size",
                "index_n_heads",
                "index_head_dim",
                "index_local_blocks",
            ),
            query_key_norm=True,
            ffn=_m3_width,
            experts=Experts(width="intermediate_size"),
            mixers={"minimax_m3_sparse": _minimax_m3, "indexed_attention": _minimax_m3, "sparse": _minimax_m3},
        ),
        "mixtral": Decoder(types=all_sliding, experts=Experts(width="intermediate_size")),
        "muse_spark_text": replace(
            _BIASED,
            norms=3,
            gate="width",
            adjust=_narrow_experts,
            extra=lambda f: 2 * f.size("hidden_size"),  # gates of both residuals
            known=_MUSE,
        ),
        "olmoe": replace(_BIASED, query_key_norm=True, norm_width="width"),
        "phimoe": replace(
            _BIASED,
            norm_bias=True,
            lm_head_bias="lm_head_bias",
            types=all_sliding,
            experts=Experts(width="intermediate_size"),
        ),
        "qwen2_moe": Decoder(query_key_value_bias="qkv_bias", types=qwen, experts=Experts(shared_gate=True)),
        "qwen3_moe": QWEN3,
        "solar_open": replace(_BIASED, experts=Experts(grouped=True)),
    }
)
"""Families by ``model_type``."""
