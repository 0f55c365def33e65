"""Mixers other than plain softmax attention, from the fields of a configuration.

Tables name a rule for each type of layer. The ``attention`` of a rule is that of the model's full layers.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from forerun.spaces.models.huggingface.decoder import MixerRule
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.mixers import (
    Attention,
    CompressedAttention,
    GatedDelta,
    GatedRecurrence,
    Indexer,
    LightningAttention,
    Mamba,
    Mamba2,
    MatrixLstm,
    ParallelMixers,
    RwkvTimeMix,
    ShortConvolution,
)
from forerun.spaces.models.parts import Mixer
from forerun.spaces.models.shapes import check_heads


def mamba2(fields: Fields, attention: Attention | None, *, norm: bool = True) -> Mamba2:
    """Read Mamba-2 in the spellings of Bamba, Granite, Falcon-H1, Zamba2, Nemotron-H and the original."""
    fields.accept("mamba_expand", "expand", "mamba_d_ssm", "mamba_norm_before_gate", "time_step_rank")
    return Mamba2(
        heads=fields.first("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads"),
        head_dim=fields.first("mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim"),
        state=fields.first("mamba_d_state", "ssm_state_size", "state_size"),
        groups=fields.first("mamba_n_groups", "mamba_ngroups", "n_groups"),
        convolution=fields.first("mamba_d_conv", "conv_kernel"),
        chunk=fields.first("mamba_chunk_size", "chunk_size"),
        bias=fields.flag("mamba_proj_bias", False) or fields.flag("use_bias", False),
        convolution_bias=fields.flag("mamba_conv_bias", True) and fields.flag("use_conv_bias", True),
        norm=norm,
    )


def mamba1(fields: Fields, attention: Attention | None, *, norms: bool = False) -> Mamba:
    """Read Mamba in the spellings of the original, Jamba and Zamba."""
    hidden, expand = fields.size("hidden_size"), fields.optional_size("mamba_expand") or fields.size("expand", 2)
    rank = fields.raw("mamba_dt_rank") or fields.raw("time_step_rank")
    rank = rank if isinstance(rank, int) and not isinstance(rank, bool) else math.ceil(hidden / 16)
    return Mamba(
        channels=expand * hidden,
        state=fields.first("mamba_d_state", "state_size"),
        rank=rank,
        convolution=fields.first("mamba_d_conv", "conv_kernel"),
        bias=fields.flag("mamba_proj_bias", False) or fields.flag("use_bias", False),
        convolution_bias=fields.flag("mamba_conv_bias", True) and fields.flag("use_conv_bias", True),
        norms=norms,
    )


def _gated_delta(fields: Fields, attention: Attention) -> GatedDelta:
    """Read the delta rule of Qwen3-Next, Qwen3.5 and OLMo Hybrid."""
    return GatedDelta(
        heads=fields.size("linear_num_value_heads"),
        key_heads=fields.size("linear_num_key_heads"),
        key_head_dim=fields.size("linear_key_head_dim"),
        value_head_dim=fields.size("linear_value_head_dim"),
        convolution=fields.size("linear_conv_kernel_dim"),
    )


def _kimi_delta(fields: Fields, attention: Attention, *, low_rank: bool = True) -> GatedDelta:
    """Read Kimi Delta Attention; its decay and gate are low-rank products (Ling 2.5: full ones)."""
    if isinstance(fields.raw("linear_attn_config"), Mapping):
        nested = fields.mapping("linear_attn_config")
        heads, width = nested.size("num_heads"), nested.size("head_dim")
        taps = nested.size("short_conv_kernel_size", 4)
    else:
        heads, width = fields.size("linear_num_heads"), fields.size("linear_head_dim")
        taps = fields.first("linear_conv_kernel_dim", "short_conv_kernel_size")
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


def _lightning(fields: Fields, attention: Attention) -> LightningAttention:
    """Read MiniMax-01: heads of the softmax layers, blocks of ``block_size``."""
    return LightningAttention(heads=attention.heads, head_dim=attention.head_dim, chunk=fields.size("block_size", 256))


def _short_convolution(fields: Fields, attention: Attention) -> ShortConvolution:
    """Read LFM2's short convolution; its channels equal the model's width."""
    bias = fields.flag("conv_bias", False)
    return ShortConvolution(channels=fields.size("hidden_size"), taps=fields.size("conv_L_cache"), bias=bias)


def _gated_recurrence(fields: Fields, attention: Attention) -> Mixer:
    width = fields.optional_size("lru_width") or fields.size("hidden_size")
    return GatedRecurrence(width=width, blocks=attention.heads, convolution=fields.size("conv1d_width", 4))


def _griffin_attention(fields: Fields, attention: Attention) -> Mixer:
    return replace(attention, window=fields.size("attention_window_size"), output_bias=True)


def _rwkv(fields: Fields, attention: Attention) -> Mixer:
    return RwkvTimeMix(channels=fields.optional_size("attention_hidden_size") or fields.size("hidden_size"))


def _parallel_mamba2(fields: Fields, attention: Attention) -> Mixer:
    """Read Falcon-H1: attention and Mamba-2 in parallel."""
    norm = fields.flag("mamba_rms_norm", False)
    return ParallelMixers(members=(attention, mamba2(fields, attention, norm=norm)))


def _matrix_lstm(fields: Fields, attention: Attention) -> Mixer:
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    keys = int(hidden * fields.number("qk_dim_factor", 0.5)) // heads
    values = int(hidden * fields.number("v_dim_factor", 1.0)) // heads
    return MatrixLstm(heads=heads, key_head_dim=keys, value_head_dim=values, bias=fields.flag("use_bias", False))


def _mimo_window(fields: Fields, attention: Attention) -> Mixer:
    """Read MiMo V2: windowed layers have a different number of key heads, and sinks."""
    kv_heads = fields.optional_size("swa_num_key_value_heads") or 2 * attention.kv_heads
    sinks = fields.flag("add_swa_attention_sink_bias", True)
    return replace(attention, kv_heads=kv_heads, sinks=sinks, window=fields.size("sliding_window"))


def _minimax_block_indexer(fields: Fields, attention: Attention) -> Mixer:
    """Read MiniMax M3: an indexer with one key per group of heads chooses blocks of keys."""
    blocks, size = fields.size("index_topk_blocks"), fields.size("index_block_size")
    indexer = Indexer(heads=fields.size("index_n_heads"), head_dim=fields.size("index_head_dim"), top_k=blocks * size)
    return replace(attention, indexer=indexer)


def _step_window(fields: Fields, attention: Attention) -> Mixer:
    """Read Step 3.5: windowed layers have a different number of heads."""
    other = fields.raw("attention_other_setting")
    given = other.get("num_attention_heads") if isinstance(other, Mapping) else None
    heads = given if isinstance(given, int) else fields.optional_size("num_sliding_attention_heads")
    heads = attention.heads if heads is None else heads
    check_heads(fields.source, heads, attention.kv_heads)
    return replace(attention, heads=heads, gate=heads, window=fields.size("sliding_window"))


def _compressed(fields: Fields, attention: Attention, *, kind: str) -> Mixer:
    """Read DeepSeek-V4's attention to compressed keys: every key of a window, and one key per chunk before it."""
    rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    if not isinstance(fields.raw("compress_rates") or {}, Mapping):
        raise fields.refusal("compress_rates", "must have the tokens of a compressed key by type of layer")
    rate = fields.mapping("compress_rates").size(kind, rates[kind]) if kind in rates else 0
    indexer = None
    if kind == "compressed_sparse_attention":
        sizes = (fields.size("index_n_heads"), fields.size("index_head_dim"), fields.size("index_topk"))
        indexer = Indexer(heads=sizes[0], head_dim=sizes[1], top_k=sizes[2])
    return CompressedAttention(
        heads=attention.heads,
        head_dim=attention.head_dim,
        query_rank=fields.size("q_lora_rank"),
        window=fields.size("sliding_window"),
        output_rank=fields.size("o_lora_rank"),
        output_groups=fields.size("o_groups"),
        rate=rate,
        overlapping=indexer is not None,
        indexer=indexer,
    )


def _cross_attention(fields: Fields, attention: Attention) -> Mixer:
    """Read Llama 3.2 Vision: listed layers attend to the image instead of the text."""
    fields.raw("cross_attention_layers")
    return replace(attention, causal=False, query_key_norm=True)


MIXERS: Mapping[str, MixerRule] = MappingProxyType(
    {
        "compressed_sparse": partial(_compressed, kind="compressed_sparse_attention"),
        "compressed_window": partial(_compressed, kind="sliding_attention"),
        "cross_attention": _cross_attention,
        "full_attention": lambda fields, attention: attention,
        "gated_delta": _gated_delta,
        "gated_recurrence": _gated_recurrence,
        "griffin_attention": _griffin_attention,
        "heavily_compressed": partial(_compressed, kind="heavily_compressed_attention"),
        "kimi_delta": _kimi_delta,
        "kimi_delta_full_rank": partial(_kimi_delta, low_rank=False),
        "lightning": _lightning,
        "mamba": mamba1,
        "mamba2": mamba2,
        "matrix_lstm": _matrix_lstm,
        "mimo_window": _mimo_window,
        "minimax_block_indexer": _minimax_block_indexer,
        "normed_mamba": partial(mamba1, norms=True),
        "parallel_mamba2": _parallel_mamba2,
        "rwkv": _rwkv,
        "short_convolution": _short_convolution,
        "step_window": _step_window,
        "windowed_attention": lambda fields, attention: replace(attention, window=fields.size("sliding_window")),
    }
)
"""Rules by their names in the tables."""
