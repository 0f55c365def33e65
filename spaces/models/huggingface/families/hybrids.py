"""Decoders of which some or all layers mix tokens by something else than softmax attention."""

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.layer_types import FULL, by_numbers, every
from forerun.spaces.models.huggingface.mixtures import Experts
from forerun.spaces.models.mixers import (
    Attention,
    GatedDelta,
    GatedRecurrence,
    LightningAttention,
    Mamba,
    Mamba2,
    MatrixLstm,
    ParallelMixers,
    RwkvTimeMix,
    ShortConvolution,
)
from forerun.spaces.models.model import FeedForward, Layer
from forerun.spaces.models.parts import Mixer

_BIASED = Decoder(query_key_value_bias="attention_bias", output_bias="attention_bias")


def mamba2(fields: Fields, attention: Attention, *, norm: bool = True) -> Mamba2:
    """Mamba-2 in the spellings of Bamba, Granite, Falcon-H1, Zamba2, Nemotron-H and the original."""
    heads = _first(fields, "mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    width = _first(fields, "mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim")
    state = _first(fields, "mamba_d_state", "ssm_state_size", "state_size")
    for name in ("mamba_expand", "expand", "mamba_d_ssm", "mamba_norm_before_gate", "time_step_rank"):
        fields.raw(name)
    bias = fields.flag("mamba_proj_bias", False) or fields.flag("use_bias", False)
    return Mamba2(
        heads=heads,
        head_dim=width,
        state=state,
        groups=_first(fields, "mamba_n_groups", "mamba_ngroups", "n_groups"),
        convolution=_first(fields, "mamba_d_conv", "conv_kernel"),
        chunk=_first(fields, "mamba_chunk_size", "chunk_size"),
        bias=bias,
        convolution_bias=fields.flag("mamba_conv_bias", True) and fields.flag("use_conv_bias", True),
        norm=norm,
    )


def _first(fields: Fields, *names: str) -> int:
    """The first of ``names`` that is given or has a default; all that are given count as read."""
    given = next((name for name in names if fields.given(name)), None)
    found = given or next((name for name in names if fields.has(name)), names[0])
    fields.read.update(names)
    return fields.size(found)


def mamba1(fields: Fields, attention: Attention | None, *, norms: bool = False, parts: int = 1) -> Mamba:
    """Mamba in the spellings of the original, Jamba and Zamba."""
    hidden, expand = fields.size("hidden_size"), fields.optional_size("mamba_expand") or fields.size("expand", 2)
    rank = fields.raw("mamba_dt_rank") or fields.raw("time_step_rank")
    rank = rank if isinstance(rank, int) and not isinstance(rank, bool) else math.ceil(hidden / 16)
    return Mamba(
        inner=expand * hidden,
        state=_first(fields, "mamba_d_state", "state_size"),
        rank=rank,
        parts=parts,
        convolution=_first(fields, "mamba_d_conv", "conv_kernel"),
        bias=fields.flag("mamba_proj_bias", False) or fields.flag("use_bias", False),
        convolution_bias=fields.flag("mamba_conv_bias", True) and fields.flag("use_conv_bias", True),
        norms=norms,
    )


def gated_delta(fields: Fields, attention: Attention) -> GatedDelta:
    """The delta rule of Qwen3-Next, Qwen3.5 and OLMo Hybrid."""
    return GatedDelta(
        heads=fields.size("linear_num_value_heads"),
        key_heads=fields.size("linear_num_key_heads"),
        key_head_dim=fields.size("linear_key_head_dim"),
        value_head_dim=fields.size("linear_value_head_dim"),
        convolution=fields.size("linear_conv_kernel_dim"),
    )


def kimi_delta(fields: Fields, attention: Attention, *, low_rank: bool = True) -> GatedDelta:
    """Kimi Delta Attention; its decay and gate are low-rank products (Ling 2.5: whole ones)."""
    if isinstance(fields.raw("linear_attn_config"), Mapping):
        nested = _kimi_config(fields)
        heads, width = nested.size("num_heads"), nested.size("head_dim")
        taps = nested.size("short_conv_kernel_size", 4)
    else:
        heads, width = fields.size("linear_num_heads"), fields.size("linear_head_dim")
        taps = _first(fields, "linear_conv_kernel_dim", "short_conv_kernel_size")
    fields.optional_size("short_conv_kernel_size")
    rank = width if low_rank else 0
    return GatedDelta(
        heads=heads,
        key_heads=heads,
        key_head_dim=width,
        value_head_dim=width,
        convolution=taps,
        decay_rank=rank,
        gate_rank=rank,
        name="Kimi Delta Attention",
    )


def _kimi_config(fields: Fields) -> Fields:
    """The sizes and places of the delta layers; what else it names is of the softmax layers."""
    nested = fields.raw("linear_attn_config")
    values = dict(nested) if isinstance(nested, Mapping) else {}
    return Fields(values, source=f"{fields.source}, linear_attn_config", defaults={})


def _kimi_types(fields: Fields, count: int) -> list[str]:
    linear = set(_kimi_config(fields).listed("kda_layers", int) or ())
    return ["linear_attention" if index + 1 in linear else FULL for index in range(count)]


def lightning(fields: Fields, attention: Attention) -> LightningAttention:
    """MiniMax-01: heads of the softmax layers, blocks of ``block_size``."""
    return LightningAttention(heads=attention.heads, head_dim=attention.head_dim, chunk=fields.size("block_size", 256))


def convolution(fields: Fields, attention: Attention) -> ShortConvolution:
    """LFM2's short convolution over as many channels as the model is wide."""
    fields.flag("conv_bias", False)
    return ShortConvolution(
        channels=fields.size("hidden_size"), taps=fields.size("conv_L_cache"), bias=fields.flag("conv_bias", False)
    )


def _lfm2_width(fields: Fields, hidden: int) -> int:
    """Two thirds of the stated width, rounded up to a multiple (``Lfm2MLP`` of transformers)."""
    inner = fields.size("intermediate_size")
    multiple = fields.size("block_multiple_of", 256)
    factor = fields.number("block_ffn_dim_multiplier", 1.0)
    if not fields.flag("block_auto_adjust_ff_dim", True):
        return inner
    inner = int(factor * int(2 * inner / 3))
    return multiple * math.ceil(inner / multiple)


def _lfm2_types(fields: Fields, count: int) -> list[str]:
    full = fields.listed("full_attn_idxs", int)
    return [FULL if full is None or index in full else "conv" for index in range(count)]


def _lfm3(fields: Fields, layer: Layer, index: int) -> Layer:
    """Norms after the blocks too, and a gate per head, where the configuration says so."""
    norms = 4 if fields.flag("use_sandwich_norm", False) else 2
    if isinstance(layer.mixer, Attention) and fields.flag("use_attention_gate", False):
        layer = replace(layer, mixer=replace(layer.mixer, gate=layer.mixer.heads))
    return replace(layer, norms=norms)


def _griffin_types(fields: Fields, count: int) -> list[str]:
    kinds = (
        fields.listed("block_types", str)
        or fields.listed("_block_types", str)
        or ["recurrent", "recurrent", "attention"]
    )
    return [kinds[index % len(kinds)] for index in range(count)]


def _griffin(fields: Fields, attention: Attention) -> Mixer:
    width = fields.optional_size("lru_width") or fields.size("hidden_size")
    return GatedRecurrence(width=width, blocks=attention.heads, convolution=fields.size("conv1d_width", 4))


def _griffin_attention(fields: Fields, attention: Attention) -> Mixer:
    return replace(attention, window=fields.size("attention_window_size"), output_bias=True)


def _rwkv(fields: Fields, attention: Attention) -> Mixer:
    return RwkvTimeMix(inner=fields.optional_size("attention_hidden_size") or fields.size("hidden_size"))


def _rwkv_extra(fields: Fields) -> int:
    """The receptance of the feed-forward, and the weights of its two shifts."""
    return fields.size("hidden_size") ** 2 + 2 * fields.size("hidden_size")


def _beside(fields: Fields, attention: Attention) -> Mixer:
    """Falcon-H1: attention and Mamba-2 side by side."""
    norm = fields.flag("mamba_rms_norm", False)
    return ParallelMixers(members=(attention, mamba2(fields, attention, norm=norm)))


def _xlstm(fields: Fields, attention: Attention) -> Mixer:
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    keys = int(hidden * fields.number("qk_dim_factor", 0.5)) // heads
    values = int(hidden * fields.number("v_dim_factor", 1.0)) // heads
    return MatrixLstm(heads=heads, key_head_dim=keys, value_head_dim=values, bias=fields.flag("use_bias", False))


def _xlstm_width(fields: Fields, hidden: int) -> int:
    multiple = fields.size("ffn_round_up_to_multiple_of", 64)
    return multiple * math.ceil(int(hidden * fields.number("ffn_proj_factor", 2.667)) / multiple)


def _jamba_types(fields: Fields, count: int) -> list[str]:
    period, offset = fields.size("attn_layer_period", 8), fields.size("attn_layer_offset", 4, least=0)
    return [FULL if index % period == offset else "linear_attention" for index in range(count)]


def _jamba(fields: Fields, layer: Layer, index: int) -> Layer:
    """Experts in every ``expert_layer_period``-th layer."""
    period, offset = fields.size("expert_layer_period", 2), fields.size("expert_layer_offset", 1, least=0)
    if index % period == offset:
        return layer
    return replace(
        layer,
        name=layer.name.replace("moe", "dense"),
        mlp=FeedForward(hidden=fields.size("intermediate_size"), gated=True),
    )


def _bamba_types(fields: Fields, count: int) -> list[str]:
    full = fields.listed("attn_layer_indices", int) or ()
    return [FULL if index in full else "linear_attention" for index in range(count)]


def _ling_types(fields: Fields, count: int) -> list[str]:
    group = fields.size("layer_group_size", 6)
    return [FULL if (index + 1) % group == 0 else "linear_attention" for index in range(count)]


def _ling_read(fields: Fields, layer: Layer, index: int) -> Layer:
    fields.raw("layer_group_size")
    if isinstance(layer.mixer, Attention):
        return replace(layer, mixer=replace(layer.mixer, gate=layer.mixer.heads))
    return layer


_MINIMAX = Decoder(
    mixers={"linear_attention": lightning},
    types=by_numbers("attn_type_list", {0: "linear_attention", 1: FULL}, every((), 2, "linear_attention")),
    experts=Experts(width="intermediate_size"),
    known=(
        "attn_type_list", "postnorm", "shared_moe_mode", "layernorm_full_attention_alpha", "use_mtp",
        "layernorm_full_attention_beta", "layernorm_linear_attention_alpha", "layernorm_linear_attention_beta",
        "layernorm_mlp_alpha", "layernorm_mlp_beta", "max_model_len", "shared_intermediate_size",
    ),
)  # fmt: skip
_MAMBA2 = {"linear_attention": mamba2, "mamba": mamba2}
_DELTA = {"linear_attention": gated_delta}
_SHARED_GATE = Experts(shared_gate=True)
_LINEAR_FIRST = every(("full_attention_interval",), 4, "linear_attention")
# Qwen's gated attention beside the delta rule: the flags say what the code always does.
_QWEN = replace(
    _BIASED,
    query_key_norm=True,
    gate="width",
    mixers=_DELTA,
    types=_LINEAR_FIRST,
    known=("full_attention_interval", "attn_output_gate", "use_qk_norm", "mtp_use_dedicated_embeddings"),
)
_LFM = Decoder(
    tied=True,
    query_key_norm=True,
    mixers={"conv": convolution},
    types=_lfm2_types,
    known=(
        "full_attn_idxs", "conv_L_cache", "conv_bias", "block_dim", "block_use_swiglu", "block_use_xavier_init",
        "conv_dim", "conv_dim_out", "conv_use_xavier_init", "use_pos_enc", "theta", "block_mlp_init_scale",
        "block_out_init_scale", "block_norm_eps", "use_expert_bias", "intermediate_size",
    ),
)  # fmt: skip


TABLE: Mapping[str, Decoder] = MappingProxyType(
    {
        "bailing_hybrid": replace(
            _BIASED,
            mixers={"linear_attention": lambda f, a: kimi_delta(f, a, low_rank=False)},
            types=_ling_types,
            experts=Experts(grouped=True, router_bias=True),
            adjust=_ling_read,
        ),
        "bamba": replace(_BIASED, mixers=_MAMBA2, types=_bamba_types, mlp_bias="mlp_bias"),
        "falcon_h1": replace(
            _BIASED,
            mixers={FULL: _beside},
            mlp_bias="mlp_bias",
            known=("mamba_use_mlp", "mlp_expansion_factor", "projectors_bias", "attn_layer_indices"),
        ),
        "falcon_mamba": Decoder(norms=1, attends=False, feeds=False, mixers={FULL: mamba1}),
        "granitemoehybrid": replace(
            _BIASED, tied=True, mixers=_MAMBA2, experts=Experts(width="intermediate_size"), shared_dense=True
        ),
        "jamba": Decoder(
            mixers={"linear_attention": lambda f, a: mamba1(f, a, norms=True)},
            types=_jamba_types,
            adjust=_jamba,
            known=("mamba_inner_layernorms", "calc_logits_for_entire_prompt", "num_logits_to_keep"),
            experts=Experts(width="intermediate_size"),
        ),
        "kimi_linear": Decoder(
            mixers={"linear_attention": kimi_delta},
            types=_kimi_types,
            experts=Experts(grouped=True, router_bias=True),
            known=("linear_attn_config", "mla_use_nope", "use_grouped_topk"),
        ),
        "lfm2": replace(_LFM, ffn=_lfm2_width),
        "lfm2_moe": replace(_LFM, experts=Experts(router_bias=True)),
        "lfm3": replace(_LFM, types=None, adjust=_lfm3),
        "mamba": Decoder(tied=True, norms=1, attends=False, feeds=False, mixers={FULL: mamba1}),
        "mamba2": Decoder(norms=1, attends=False, feeds=False, mixers={FULL: mamba2}, known=("rms_norm",)),
        "minimax": _MINIMAX,
        "minimax_m1": _MINIMAX,
        "minimax_text_01": _MINIMAX,
        "olmo_hybrid": replace(
            _BIASED, query_key_norm=True, norm_width="width", mixers=_DELTA, types=every((), 4, "linear_attention")
        ),
        "qwen3_5_moe_text": replace(_QWEN, experts=_SHARED_GATE),
        "qwen3_5_text": _QWEN,
        "qwen3_next": replace(_QWEN, experts=_SHARED_GATE),
        "recurrent_gemma": Decoder(
            tied=True,
            query_key_value_bias="attention_bias",
            mlp_bias=True,
            types=_griffin_types,
            mixers={"recurrent": _griffin, "attention": _griffin_attention},
            ffn=lambda f, h: f.size("intermediate_size") // 2,
        ),
        "rwkv": Decoder(
            norm_bias=True, gated=False, attends=False, mixers={FULL: _rwkv}, default_ffn_multiple=4, extra=_rwkv_extra
        ),
        "xlstm": Decoder(attends=False, mixers={FULL: _xlstm}, ffn=_xlstm_width, known=("add_out_norm",)),
    }
)
"""Families by ``model_type``."""
