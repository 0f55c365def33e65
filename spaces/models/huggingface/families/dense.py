"""Decoders whose layers are alike: attention, full or windowed, and a dense feed-forward.

The facts are those of the modeling files of transformers (https://github.com/huggingface/transformers, v5.23); what a
configuration says itself is not repeated here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.families.adjust import bloom_like, falcon_kv_heads, falcon_norms, phi_norms
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.layer_types import FULL, SLIDING, all_sliding, alternating, every, qwen
from forerun.spaces.models.model import Layer, Model

_BIASED = Decoder(query_key_value_bias="attention_bias", output_bias="attention_bias")
# GPT-2 and its descendants: LayerNorm, biases everywhere, two matrices in the feed-forward, four times as wide.
_GPT = Decoder(gated=False, norm_bias=True, mlp_bias=True, default_ffn_multiple=4)
_GPT_BIASED = replace(_GPT, query_key_value_bias=True, output_bias=True)
_LLAMA = Decoder(query_key_value_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias")
_QWEN2 = Decoder(query_key_value_bias=True, types=qwen)
_MISTRAL = Decoder(types=all_sliding)
_GPT2 = Decoder(
    tied=True,
    gated=False,
    norm_bias=True,
    mlp_bias=True,
    default_ffn_multiple=4,
    query_key_value_bias=True,
    output_bias=True,
    learned_positions=0,
)


def _gpt_neo_types(fields: Fields, count: int) -> list[str]:
    """Global and local in turn, as ``attention_types`` or its expansion ``attention_layers`` says."""
    kinds = fields.listed("attention_layers", str, length=count)
    fields.raw("attention_types")
    kinds = kinds or [("global", "local")[index % 2] for index in range(count)]
    return [SLIDING if kind == "local" else FULL for kind in kinds]


def _mpt(fields: Fields, hidden: int) -> int:
    return int(fields.number("expansion_ratio", 4) * hidden)


def _moshi(fields: Fields, hidden: int) -> int:
    return fields.size("intermediate_size") // 2


def _ctrl(fields: Fields, hidden: int) -> int:
    return fields.size("dff")


def _neox_japanese(fields: Fields, hidden: int) -> int:
    return fields.size("intermediate_multiple_size") * hidden


def _opt(fields: Fields) -> int:
    """OPT 350M: tables narrower than the layers, a product back to their width, positions as wide as the layers, no
    norm after them."""
    hidden, width = fields.size("hidden_size"), fields.optional_size("word_embed_proj_dim")
    made = 0 if fields.flag("do_layer_norm_before", True) else -2 * hidden
    if width in (None, hidden):
        return made
    rows = fields.size("max_position_embeddings") + 2
    return made + hidden * width + rows * (hidden - width) - hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """A decoder whose configuration has ``names`` of its own (Kosmos)."""

    decoder: Decoder
    names: Mapping[str, str]

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``."""
        for own, usual in self.names.items():
            fields.values[usual] = fields.raw(own)
        return self.decoder.read(fields, name)


_KOSMOS = Renamed(
    decoder=replace(
        _GPT_BIASED,
        tied=True,
        extra=lambda f: 2 * (f.size("hidden_size") + f.size("intermediate_size")),  # norms inside both blocks
        known=("add_cross_attention", "max_position_embeddings", "embed_dim", "layers"),
    ),
    names={"embed_dim": "hidden_size", "layers": "num_hidden_layers"},
)
HUNYUAN = replace(
    _BIASED,
    query_key_norm="use_qk_norm",
    known=(
        "use_qk_norm", "attention_head_dim", "cla_share_factor", "use_rotary_pos_emb", "num_media_embeds",
        "org_vocab_size", "use_cla", "use_mla", "dense_list", "group_limited_greedy", "anyres_vit_max_image_size",
        "anyres_pooling_size",
        "moe_layer_num_skipped", "moe_drop_tokens", "moe_random_routing_dropped_token", "use_mixed_mlp_moe",
        "vit_patch", "vit_mapping_type", "vit_input_resolution",
    ),
)  # fmt: skip


def _prompts(fields: Fields) -> int:
    """CPM-Ant: rows of prompts beside those of tokens, and of segments."""
    rows = fields.size("prompt_types") * fields.size("prompt_length") + fields.size("segment_types")
    return rows * fields.size("hidden_size")


def _cpm_positions(fields: Fields) -> int:
    """CPM-Ant: biases of relative positions and of pairs of segments."""
    pairs = fields.size("position_bias_num_buckets") + fields.size("segment_types") ** 2
    return pairs * fields.size("num_attention_heads")


def _stacks(fields: Fields, layer: Layer, index: int) -> Layer:
    """HRM: two stacks that run several times; layers after the first pass have no weights of their own."""
    return replace(layer, shared_weights=index >= 2 * fields.size("num_layers_per_stack"))


TABLE: Mapping[str, Decoder | Renamed] = MappingProxyType(
    {
        "apertus": replace(_BIASED, gated=False, query_key_norm=True),
        "arcee": replace(_BIASED, gated=False, mlp_bias="mlp_bias"),
        "biogpt": replace(_GPT_BIASED, tied=True, learned_positions=2),
        "bitnet": replace(_BIASED, extra=lambda f: f.size("hidden_size") + f.size("intermediate_size")),
        "bloom": replace(_GPT_BIASED, tied=True, rotary=False, embedding_norm=True),
        "codegen": replace(_GPT, norms=1, lm_head_bias=True),
        "cohere": replace(_BIASED, tied=True, norms=1, query_key_norm="use_qk_norm"),
        "cohere2": replace(
            _BIASED,
            known=(
                "order_of_interleaved_layers",
                "layer_switch",
                "use_gated_activation",
                "use_embedding_sharing",
                "use_parallel_block",
                "use_parallel_embedding",
            ),
            tied=True,
            norms=1,
            types=every(("layer_switch", "sliding_window_pattern"), 4),
        ),
        "cpmant": Decoder(
            embedding_extra=_prompts,
            extra_once=_cpm_positions,
            known=("position_bias_max_distance", "tie_word_embeddings"),
            untied=True,
        ),
        "ctrl": replace(_GPT_BIASED, tied=True, lm_head_bias=True, ffn=_ctrl),
        "cwm": Decoder(types=lambda f, n: [SLIDING if index % 4 else FULL for index in range(n)]),
        "diffllama": replace(_BIASED, extra=lambda f: 4 * f.size("head_dim", 64), known=("lambda_std_dev",)),
        "exaone4": Decoder(query_key_norm=True, types=every(("sliding_window_pattern",), 4)),
        "falcon": Decoder(
            tied=True,
            query_key_value_bias="bias",
            output_bias="bias",
            gated=False,
            norm_bias=True,
            mlp_bias="bias",
            default_ffn_multiple=4,
            kv_heads=falcon_kv_heads,
            adjust=falcon_norms,
        ),
        "gemma": replace(_BIASED, tied=True, sizes={"head_dim": 256}),
        "gemma2": replace(
            _BIASED,
            tied=True,
            norms=4,
            types=alternating,
            sizes={"vocab_size": 256000, "head_dim": 256, "sliding_window": 4096},
        ),
        "gemma3_text": replace(
            _BIASED,
            tied=True,
            norms=4,
            query_key_norm=True,
            types=every(("sliding_window_pattern", "_sliding_window_pattern"), 6),
            sizes={
                "vocab_size": 262208,
                "hidden_size": 2304,
                "intermediate_size": 9216,
                "num_hidden_layers": 26,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "head_dim": 256,
                "sliding_window": 4096,
            },
        ),
        "glm": Decoder(query_key_value_bias="attention_bias"),
        "glm4": Decoder(query_key_value_bias="attention_bias", norms=4),
        "gpt2": _GPT2,
        "gpt-sw3": _GPT2,
        "gpt_bigcode": replace(
            _GPT_BIASED,
            tied=True,
            learned_positions=0,
            kv_heads=lambda f: 1 if f.flag("multi_query", True) else f.size("n_head"),
            known=("num_key_value_heads",),
        ),
        "gpt_neo": replace(_GPT, tied=True, learned_positions=0, types=_gpt_neo_types, output_bias=True),
        "gpt_neox": Decoder(
            gated=False,
            norm_bias=True,
            mlp_bias=True,
            query_key_value_bias="attention_bias",
            output_bias="attention_bias",
        ),
        "gpt_neox_japanese": Decoder(tied=True, gated=False, norm_bias=True, ffn=_neox_japanese),
        "gptj": replace(_GPT, norms=1, lm_head_bias=True),
        "granite": _LLAMA,
        "granite_swa": replace(_BIASED, sinks=True, mlp_bias="mlp_bias"),
        "helium": Decoder(mlp_bias="mlp_bias", query_key_value_bias="attention_bias"),
        "hrm_text": Decoder(
            norms=0,
            final_norm=False,
            gate="width",
            adjust=_stacks,
            extra_once=lambda f: f.size("hidden_size"),
            known=("H_cycles", "L_cycles", "L_bp_cycles"),
        ),
        "hunyuan_v1_dense": HUNYUAN,
        "hyperclovax": replace(
            _BIASED,
            mlp_bias="mlp_bias",
            extra=lambda f: 2 * f.size("hidden_size") if f.flag("use_post_norm", False) else 0,
        ),
        "internlm2": Decoder(query_key_value_bias="bias", output_bias="bias"),
        "internlm3": Decoder(query_key_value_bias="qkv_bias", output_bias="bias", mlp_bias="bias"),
        "imagegpt": replace(
            _GPT2, tied=False, norm_bias=False, head=False, extra_once=lambda f: 2 * f.size("hidden_size")
        ),
        "iquestcoder": _LLAMA,
        "jais2": replace(_BIASED, gated=False, norm_bias=True, mlp_bias="mlp_bias"),
        "emu3_text_model": _LLAMA,
        "kosmos_2_5_text_model": _KOSMOS,
        "kosmos_2_text_model": _KOSMOS,
        "llama": _LLAMA,
        "ministral": _MISTRAL,
        "ministral3": _MISTRAL,
        "mimo": replace(_QWEN2, known=("use_mla",)),
        "mistral": _MISTRAL,
        "moshi": Decoder(
            ffn=_moshi,
            embedding_extra=lambda f: f.size("hidden_size"),
            known=("audio_encoder_config", "depth_decoder_config", "num_codebooks", "sliding_window"),
        ),
        "mpt": Decoder(
            known=("init_config", "verbose"), tied=True, rotary=False, gated=False, ffn=_mpt, adjust=bloom_like
        ),
        "nanochat": Decoder(gated=False, norms=0, final_norm=False, query_key_value_bias="attention_bias"),
        "nemotron": replace(_BIASED, gated=False, norm_bias=True, mlp_bias="mlp_bias"),
        "olmo": replace(_BIASED, norms=0, final_norm=False),
        "olmo2": replace(_BIASED, query_key_norm=True, norm_width="width"),
        "olmo3": replace(_BIASED, query_key_norm=True, norm_width="width", types=every((), 4)),
        "openai-gpt": replace(_GPT_BIASED, tied=True, learned_positions=0, final_norm=False),
        "voxtral_realtime_text": replace(_MISTRAL, tied=True, extra=lambda f: 2 * 32 * f.size("hidden_size")),
        "muse_glimmer_text": replace(_BIASED, norms=4, gate="width", known=("output_multiplier", "qk_scale_factor")),
        "opt": Decoder(
            tied=True,
            gated=False,
            norm_bias=True,
            mlp_bias="enable_bias",
            learned_positions=2,
            query_key_value_bias="enable_bias",
            output_bias="enable_bias",
            embedding_width="word_embed_proj_dim",
            extra_once=_opt,
            known=("layer_norm_elementwise_affine",),
        ),
        "persimmon": replace(_GPT_BIASED, query_key_norm="qk_layernorm"),
        "phi": replace(_GPT_BIASED, norms=1, lm_head_bias=True, query_key_norm="qk_layernorm"),
        "phi3": _MISTRAL,
        "qwen": Decoder(query_key_value_bias=True, ffn=lambda f, h: f.size("intermediate_size") // 2),
        "qwen2": _QWEN2,
        "qwen3": replace(_BIASED, query_key_norm=True, types=qwen, sizes={"head_dim": 128}),
        "seed_oss": Decoder(
            query_key_value_bias="attention_bias", output_bias="attention_out_bias", mlp_bias="mlp_bias"
        ),
        "smollm3": replace(_BIASED, tied=True, mlp_bias="mlp_bias", types=qwen),
        "stablelm": Decoder(
            norm_bias=True,
            query_key_value_bias="use_qkv_bias",
            query_key_norm="qk_layernorm",
            adjust=phi_norms,
        ),
        "starcoder2": Decoder(
            tied=True,
            gated=False,
            norm_bias=True,
            query_key_value_bias="use_bias",
            output_bias="use_bias",
            mlp_bias="use_bias",
            types=all_sliding,
        ),
        "vaultgemma": replace(_BIASED, tied=True, types=alternating),
        "xglm": replace(_GPT_BIASED, tied=True),
    }
)
"""Families by ``model_type``."""
