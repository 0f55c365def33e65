"""One rule per family: which fields of its configuration make which architecture.

The facts are those of the modeling files of transformers (https://github.com/huggingface/transformers, v4.57).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.architecture import Architecture, layer_count, mixture, typed_windows
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.model import LatentAttention, MixtureOfExperts


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A rule and the sizes that transformers fills in where the configuration leaves them out."""

    rule: Callable[[Fields], Architecture]
    defaults: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


def _tied(fields: Fields, default: bool) -> bool:
    return fields.flag("tie_word_embeddings", default)


def _llama(fields: Fields) -> Architecture:
    bias = fields.flag("attention_bias", False)
    return Architecture(
        tied=_tied(fields, False),
        query_key_value_bias=bias,
        output_bias=bias,
        mlp_bias=fields.flag("mlp_bias", False),
    )


def _mistral(fields: Fields) -> Architecture:
    count = layer_count(fields)
    windows = typed_windows(fields, fields.optional_size("sliding_window"), [True] * count)
    return Architecture(tied=_tied(fields, False), windows=windows)


def _mixtral(fields: Fields) -> Architecture:
    count = layer_count(fields)
    windows = typed_windows(fields, fields.optional_size("sliding_window"), [True] * count)
    return Architecture(tied=_tied(fields, False), windows=windows, mixtures=[mixture(fields)] * count)


def _qwen_windows(fields: Fields) -> list[int | None]:
    """Layers from ``max_window_layers`` on are windowed if ``use_sliding_window`` is set."""
    count = layer_count(fields)
    window = fields.optional_size("sliding_window")
    first = fields.optional_size("max_window_layers", least=0)
    if not fields.flag("use_sliding_window", False):
        fields.listed("layer_types", str, length=count)
        return []
    start = 28 if first is None else first  # class default, configuration_qwen2.py
    return list(typed_windows(fields, window, [index >= start for index in range(count)]))


def _qwen2(fields: Fields) -> Architecture:
    return Architecture(tied=_tied(fields, False), query_key_value_bias=True, windows=_qwen_windows(fields))


def _qwen3(fields: Fields) -> Architecture:
    bias = fields.flag("attention_bias", False)
    return Architecture(
        tied=_tied(fields, False),
        query_key_value_bias=bias,
        output_bias=bias,
        query_key_norm=True,
        windows=_qwen_windows(fields),
    )


def _sparse_steps(fields: Fields, experts: MixtureOfExperts) -> list[MixtureOfExperts | None]:
    """Every ``decoder_sparse_step``-th layer is a mixture, less those in ``mlp_only_layers``."""
    step = fields.size("decoder_sparse_step", 1)
    dense = set(fields.listed("mlp_only_layers", int) or ())
    return [None if index in dense or (index + 1) % step else experts for index in range(layer_count(fields))]


def _qwen2_moe(fields: Fields) -> Architecture:
    shared = fields.size("shared_expert_intermediate_size", least=0)
    experts = mixture(fields, shared_hidden=shared, shared_gate=shared > 0)
    return Architecture(
        tied=_tied(fields, False),
        query_key_value_bias=fields.flag("qkv_bias", True),
        windows=_qwen_windows(fields),
        mixtures=_sparse_steps(fields, experts),
    )


def _qwen3_moe(fields: Fields) -> Architecture:
    bias = fields.flag("attention_bias", False)
    return Architecture(
        tied=_tied(fields, False),
        query_key_value_bias=bias,
        output_bias=bias,
        query_key_norm=True,
        windows=_qwen_windows(fields),
        mixtures=_sparse_steps(fields, mixture(fields)),
    )


def _deepseek(fields: Fields, *, router_bias: bool, grouped: bool) -> Architecture:
    count = layer_count(fields)
    groups = fields.size("n_group", 1) if grouped else 1
    top_groups = fields.size("topk_group", groups) if grouped else 1
    if top_groups > groups:
        raise RequestError(f"{fields.source}: topk_group <= n_group must hold, but got ({top_groups}, {groups})")
    bias = fields.flag("attention_bias", False)
    latent = LatentAttention(
        query_rank=fields.optional_size("q_lora_rank"),
        key_value_rank=fields.size("kv_lora_rank"),
        rope_head_dim=fields.size("qk_rope_head_dim"),
    )
    first = fields.size("first_k_dense_replace", 0, least=0)
    every = fields.size("moe_layer_freq", 1)
    shared = fields.optional_size("n_shared_experts", least=0) or 0
    mixtures: list[MixtureOfExperts | None] = []
    if fields.optional_size("num_local_experts") is not None:
        inner = fields.size("moe_intermediate_size")
        traits = {"router_bias": router_bias, "groups": groups, "top_groups": top_groups}
        experts = mixture(fields, shared_hidden=shared * inner, **traits)
        mixtures = [experts if index >= first and index % every == 0 else None for index in range(count)]
    return Architecture(
        tied=_tied(fields, False),
        query_key_value_bias=bias,
        output_bias=bias,
        latent=latent,
        latent_nope_head_dim=fields.size("qk_nope_head_dim"),
        latent_value_head_dim=fields.size("v_head_dim"),
        mixtures=mixtures,
        mtp_layers=fields.optional_size("num_nextn_predict_layers", least=0, most=64) or 0,
    )


def _deepseek_v2(fields: Fields) -> Architecture:
    # "greedy" looks at all experts, "group_limited_greedy" at those of the best groups.
    return _deepseek(fields, router_bias=False, grouped=fields.text("topk_method") == "group_limited_greedy")


def _deepseek_v3(fields: Fields) -> Architecture:
    # Balanced by a bias per expert, not by a loss (arXiv 2412.19437, section 2.1.2), unless the method says otherwise.
    return _deepseek(fields, router_bias=fields.text("topk_method") in (None, "noaux_tc"), grouped=True)


def _gpt_oss(fields: Fields) -> Architecture:
    count = layer_count(fields)
    bias = fields.flag("attention_bias", True)
    window = fields.optional_size("sliding_window")
    experts = mixture(fields, router_bias=True, expert_bias=True)
    return Architecture(
        tied=_tied(fields, False),
        query_key_value_bias=bias,
        output_bias=bias,
        sinks=True,
        windows=typed_windows(fields, window, [index % 2 == 0 for index in range(count)]),
        mixtures=[experts] * count,
    )


def _gemma(fields: Fields) -> Architecture:
    bias = fields.flag("attention_bias", False)
    return Architecture(tied=_tied(fields, True), query_key_value_bias=bias, output_bias=bias)


def _gemma2(fields: Fields) -> Architecture:
    count = layer_count(fields)
    bias = fields.flag("attention_bias", False)
    window = fields.size("sliding_window", 4096)
    return Architecture(
        tied=_tied(fields, True),
        norms=4,
        query_key_value_bias=bias,
        output_bias=bias,
        windows=typed_windows(fields, window, [index % 2 == 0 for index in range(count)]),
    )


def _gemma3(fields: Fields) -> Architecture:
    count = layer_count(fields)
    bias = fields.flag("attention_bias", False)
    window = fields.size("sliding_window", 4096)
    pattern = fields.optional_size("sliding_window_pattern") or fields.optional_size("_sliding_window_pattern") or 6
    return Architecture(
        tied=_tied(fields, True),
        norms=4,
        query_key_value_bias=bias,
        output_bias=bias,
        query_key_norm=True,
        windows=typed_windows(fields, window, [(index + 1) % pattern != 0 for index in range(count)]),
    )


def _gpt2(fields: Fields) -> Architecture:
    return Architecture(
        tied=_tied(fields, True),
        gated=False,
        norm_bias=True,
        query_key_value_bias=True,
        output_bias=True,
        mlp_bias=True,
        learned_positions=True,
        default_ffn_multiple=4,
    )


def _gpt_neox(fields: Fields) -> Architecture:
    bias = fields.flag("attention_bias", True)
    return Architecture(
        tied=_tied(fields, False),
        gated=False,
        norm_bias=True,
        query_key_value_bias=bias,
        output_bias=bias,
        mlp_bias=True,
    )


def _bloom(fields: Fields) -> Architecture:
    return Architecture(
        tied=_tied(fields, True),
        gated=False,
        norm_bias=True,
        query_key_value_bias=True,
        output_bias=True,
        mlp_bias=True,
        embedding_norm=True,
        default_ffn_multiple=4,
    )


def _falcon(fields: Fields) -> Architecture:
    bias = fields.flag("bias", False)
    new = fields.flag("new_decoder_architecture", False)
    parallel = fields.flag("parallel_attn", True)
    single = fields.flag("multi_query", True)
    norms_field = fields.optional_size("num_ln_in_parallel_attn")
    norms = (norms_field or 2) if new else (1 if parallel else 2)
    heads = fields.size("num_attention_heads")
    kv_heads = fields.size("num_key_value_heads", heads)
    return Architecture(
        tied=_tied(fields, True),
        gated=False,
        norm_bias=True,
        norms=norms,
        query_key_value_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        default_ffn_multiple=4,
        kv_heads=kv_heads if new else 1 if single else heads,
    )


def _phi(fields: Fields) -> Architecture:
    if fields.flag("qk_layernorm", False):
        raise RequestError(f"{fields.source}: qk_layernorm of Phi is not modelled; describe the model in a YAML file")
    return Architecture(
        tied=_tied(fields, False),
        gated=False,
        norm_bias=True,
        norms=1,
        query_key_value_bias=True,
        output_bias=True,
        mlp_bias=True,
        lm_head_bias=True,
    )


def _starcoder2(fields: Fields) -> Architecture:
    bias = fields.flag("use_bias", True)
    windows = typed_windows(fields, fields.optional_size("sliding_window"), [True] * layer_count(fields))
    return Architecture(
        tied=_tied(fields, True),
        gated=False,
        norm_bias=True,
        query_key_value_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        windows=windows,
    )


def _nemotron(fields: Fields) -> Architecture:
    bias = fields.flag("attention_bias", False)
    return Architecture(
        tied=_tied(fields, False),
        gated=False,
        norm_bias=True,
        query_key_value_bias=bias,
        output_bias=bias,
        mlp_bias=fields.flag("mlp_bias", False),
    )


# Nested Gemma configurations leave out what equals the class defaults (configuration_gemma*.py), so they are needed.
_GEMMA2_SIZES = MappingProxyType({"vocab_size": 256000, "head_dim": 256, "sliding_window": 4096})
_GEMMA3_SIZES = MappingProxyType(
    {
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
    }
)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "bloom": Family(rule=_bloom),
        "deepseek_v2": Family(rule=_deepseek_v2),
        "deepseek_v3": Family(rule=_deepseek_v3),
        "falcon": Family(rule=_falcon),
        "gemma": Family(rule=_gemma, defaults=MappingProxyType({"head_dim": 256})),
        "gemma2": Family(rule=_gemma2, defaults=_GEMMA2_SIZES),
        "gemma3_text": Family(rule=_gemma3, defaults=_GEMMA3_SIZES),
        "gpt2": Family(rule=_gpt2),
        "gpt_neox": Family(rule=_gpt_neox),
        "gpt_oss": Family(rule=_gpt_oss, defaults=MappingProxyType({"head_dim": 64})),
        "granite": Family(rule=_llama),
        "kimi_k2": Family(rule=_deepseek_v3),
        "llama": Family(rule=_llama),
        "mistral": Family(rule=_mistral),
        "mixtral": Family(rule=_mixtral),
        "nemotron": Family(rule=_nemotron),
        "phi": Family(rule=_phi),
        "phi3": Family(rule=_mistral),
        "qwen2": Family(rule=_qwen2),
        "qwen2_moe": Family(rule=_qwen2_moe),
        "qwen3": Family(rule=_qwen3, defaults=MappingProxyType({"head_dim": 128})),
        "qwen3_moe": Family(rule=_qwen3_moe),
        "starcoder2": Family(rule=_starcoder2),
    }
)


def model_types() -> tuple[str, ...]:
    """The values of ``model_type`` that are understood, sorted."""
    return tuple(sorted(FAMILIES))
