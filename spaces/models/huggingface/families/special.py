"""Decoders with more in a layer than a mixer and a feed-forward.

Weights that layers share, inputs of their own for each layer, several streams of activations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from forerun.spaces.errors import unknown
from forerun.spaces.models.huggingface import mixtures
from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.families.hybrids import mamba1, mamba2
from forerun.spaces.models.huggingface.families.latent import hyper_connections
from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields
from forerun.spaces.models.huggingface.layer_types import every
from forerun.spaces.models.huggingface.mixtures import Experts
from forerun.spaces.models.huggingface.sequence import sequence_model
from forerun.spaces.models.mixers import Attention, CompressedAttention, Indexer
from forerun.spaces.models.model import FeedForward, Layer, MixtureOfExperts, Model
from forerun.spaces.models.parts import Mixer

_ZAMBA_KINDS = ("mamba", "linear_attention", "hybrid", "full_attention")
_GEMMA = Decoder(
    tied=True,
    norms=4,
    query_key_norm=True,
    query_key_value_bias="attention_bias",
    output_bias="attention_bias",
    types=every(("sliding_window_pattern",), 6),
)


def _own_inputs(fields: Fields) -> int:
    """Gemma 3n: a table of inputs for each layer, its projection from the embedding, and that of each extra stream."""
    hidden, width = fields.size("hidden_size"), fields.optional_size("hidden_size_per_layer_input", least=0) or 0
    count = fields.size("num_hidden_layers", most=MOST_LAYERS)
    vocab = fields.optional_size("vocab_size_per_layer_input") or 0
    streams = fields.optional_size("altup_num_inputs") or 1
    return (vocab + hidden) * count * width + (width and width) + 2 * (streams - 1) * hidden * hidden


def _own_input(fields: Fields) -> int:
    """Gate, projection and norm of a layer's own input; Gemma 3n's low-rank branch and mixing of streams besides."""
    hidden, width = fields.size("hidden_size"), fields.optional_size("hidden_size_per_layer_input", least=0) or 0
    made = 2 * hidden * width + hidden if width else 0
    rank, streams = fields.optional_size("laurel_rank"), fields.optional_size("altup_num_inputs")
    if rank is not None:
        made += 2 * hidden * rank + hidden
    if streams is not None:
        made += 2 * hidden + streams * hidden + streams**2 + streams**3
    return made


def _gemma3n(fields: Fields, layer: Layer, index: int) -> Layer:
    """Widths one by one; the last layers read an earlier layer's keys."""
    width = fields.of_layer("intermediate_size", index)
    if width is not None:
        layer = replace(layer, mlp=FeedForward(hidden=width, gated=True))
    return _shared_keys(fields, layer, index)


def _shared_keys(fields: Fields, layer: Layer, index: int) -> Layer:
    shared = fields.optional_size("num_kv_shared_layers", least=0) or 0
    if index < fields.size("num_hidden_layers", most=MOST_LAYERS) - shared:
        return layer
    return replace(layer, mixer=replace(layer.attention, shared_keys=True))


def _gemma4(fields: Fields, layer: Layer, index: int) -> Layer:
    """Full layers have a head width of their own, and may take values from keys; experts stand beside the dense MLP."""
    own = fields.of_one_layer("per_layer_config", index)
    attention, full = layer.attention, layer.attention.window is None
    wide = own.optional_size("head_dim") or (fields.optional_size("global_head_dim") if full else None)
    if wide:
        attention = replace(attention, head_dim=wide, value_head_dim=wide)
    if full and fields.flag("attention_k_eq_v", False):
        keys = fields.optional_size("num_global_key_value_heads") or attention.kv_heads
        attention = replace(attention, kv_heads=keys, shared_values=True)
    return _shared_keys(fields, replace(layer, mixer=attention), index)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBlocks:
    """Zamba: Mamba layers, and between some of them a transformer block whose weights all its places share. It reads
    the hidden state and the embedding side by side; a product brings its output back (arXiv 2405.16712, section 2)."""

    second: bool = False

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``."""
        hidden, count = fields.size("hidden_size"), fields.size("num_hidden_layers", most=MOST_LAYERS)
        kinds = self._kinds(fields, count)
        blocks, layers, mixer = fields.size("num_mem_blocks", 1), [], self._mamba(fields)
        mamba = Layer(name="mamba", count=1, mixer=mixer, mlp=None, norms=1)
        shared = self._block(fields, hidden)
        place = 0
        for kind in kinds:
            if kind != "linear_attention" and kind != "mamba":
                first = place < blocks
                adapters = self._adapters(fields, hidden) + hidden * hidden
                layers.append(replace(shared, shared_weights=not first, extra=adapters + (hidden if first else 0)))
                place += 1
            layers.append(mamba)
        for one in (
            "attention_hidden_size",
            "hybrid_layer_ids",
            "layer_types",
            "gated_linear_unit",
            "lora_rank",
            "rotary_percent",
            "ft_lora",
            "use_shared_block_lora",
            "use_shared_mlp_lora",
            "use_shared_attention_lora",
            "use_low_rank_mamba_proj",
            "add_bias_linear",
            "use_shared_attention_adapter",
            "use_mem_rope",
            "attn_layer_offset",
            "attn_layer_period",
            "num_query_groups",
            "kv_channels",
            "mamba_expand",
        ):
            fields.raw(one)
        return sequence_model(fields, name, hidden, layers, tied=True)

    def _kinds(self, fields: Fields, count: int) -> Sequence[str]:
        listed = fields.listed("layers_block_type", str) or fields.listed("layer_types", str)
        if listed is not None:
            strange = next((kind for kind in listed if kind not in _ZAMBA_KINDS), None)
            if strange is not None:
                raise unknown("kind of layer", strange, _ZAMBA_KINDS)
            return listed
        if self.second:
            hybrid = fields.listed("hybrid_layer_ids", int) or ()
            return ["hybrid" if index in hybrid else "mamba" for index in range(count)]
        period, offset = fields.size("attn_layer_period", 6), fields.size("attn_layer_offset", 4, least=0)
        return ["hybrid" if index % period == offset else "mamba" for index in range(count)]

    def _mamba(self, fields: Fields) -> Mixer:
        attention = Attention(heads=1, kv_heads=1, head_dim=1, value_head_dim=1)
        return mamba2(fields, attention) if self.second else mamba1(fields, None, parts=fields.size("n_mamba_heads", 2))

    def _block(self, fields: Fields, hidden: int) -> Layer:
        heads = fields.size("num_attention_heads")
        width = fields.optional_size("attention_head_dim") or 2 * hidden // heads
        attention = Attention(
            heads=heads,
            kv_heads=fields.optional_size("num_key_value_heads") or heads,
            head_dim=width,
            value_head_dim=width,
            input_width=2 * hidden,
        )
        inner = fields.size("intermediate_size", 4 * hidden)
        return Layer(name="shared", count=1, mixer=attention, mlp=FeedForward(hidden=inner, gated=True), norms=2)

    def _adapters(self, fields: Fields, hidden: int) -> int:
        """Zamba2: low-rank changes of the shared feed-forward at each place."""
        if not self.second:
            return 0
        return fields.size("adapter_rank", 128) * (hidden + 2 * fields.size("intermediate_size", 4 * hidden))


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleLayers:
    """LongCat-Flash (arXiv 2509.01322, section 2.2): a layer is two attentions with a dense feed-forward each, and
    experts beside the first of them; choices of the router may be null experts."""

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``."""
        hidden, count = fields.size("hidden_size"), fields.size("num_hidden_layers", most=MOST_LAYERS)
        decoder = Decoder(query_key_value_bias="attention_bias", output_bias="attention_bias")
        inner = fields.size("intermediate_size")
        dense = Layer(
            name="dense", count=2, mixer=decoder.attention(fields, hidden), mlp=FeedForward(hidden=inner, gated=True)
        )
        routed = mixtures.mixture(fields, Experts())
        routed = replace(routed, null_experts=fields.size("zero_expert_num", 0, least=0))
        experts = Layer(name="moe", count=1, mixer=None, mlp=routed, norms=0)
        return sequence_model(fields, name, hidden, (dense, experts) * count, mtp="num_nextn_predict_layers")


def _compressed(kind: str) -> Any:
    """DeepSeek-V4's attention to compressed keys: every key of a window, and before it one for each chunk."""

    def rule(fields: Fields, attention: Attention) -> Mixer:
        rates = fields.raw("compress_rates") or {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
        rate = int(rates.get(kind, 0))
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

    return rule


def _v4_types(fields: Fields, count: int) -> list[str]:
    """Two heavily compressed layers, then the sparse and the heavy kind in turn; or by the ratios of each layer."""
    ratios = fields.listed("compress_ratios", int)
    kinds = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    if ratios is not None:
        return [kinds.get(ratio, "heavily_compressed_attention") for ratio in ratios[:count]]
    return [kinds[128] if index < 3 or index % 2 == 0 else kinds[4] for index in range(count)]


def _hyper_head(fields: Fields) -> int:
    streams = fields.size("hc_mult")
    return streams * (streams * fields.size("hidden_size") + 1) + 1


def _v4_sparse(fields: Fields, layer: Layer, index: int) -> Layer:
    """Every layer has experts; the first few choose them by a hash of the token."""
    if isinstance(layer.mlp, MixtureOfExperts):
        return layer
    return replace(layer, name=layer.name.replace("dense", "moe"), mlp=mixtures.mixture(fields, Experts()))


def _own_latent(fields: Fields, layer: Layer, index: int) -> Layer:
    """Layers whose latent attention has another number of heads or rank (``per_layer_config``); the others have an
    indexer."""
    own = fields.of_one_layer("per_layer_config", index)
    attention = layer.attention
    latent = attention.latent
    if latent is None or not own.values:
        return layer
    heads = own.size("num_attention_heads", attention.heads)
    nope = own.size("qk_nope_head_dim", attention.head_dim - latent.rope_head_dim)
    attention = replace(
        attention,
        heads=heads,
        kv_heads=heads,
        gate=heads,
        head_dim=nope + latent.rope_head_dim,
        latent=replace(latent, key_value_rank=own.size("kv_lora_rank", latent.key_value_rank)),
        indexer=None,
    )
    return replace(layer, mixer=attention)


_V4_KINDS = ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention")


def _cross_types(fields: Fields, count: int) -> list[str]:
    """Llama 3.2 Vision: the listed layers attend to the image instead of the text."""
    cross = fields.listed("cross_attention_layers", int) or ()
    return ["cross" if index in cross else "full_attention" for index in range(count)]


def _cross(fields: Fields, attention: Attention) -> Mixer:
    fields.raw("cross_attention_layers")
    return replace(attention, causal=False, query_key_norm=True)


TABLE: Mapping[str, Decoder | SharedBlocks | DoubleLayers] = MappingProxyType(
    {
        "deepseek_v4": Decoder(
            types=_v4_types,
            mixers={kind: _compressed(kind) for kind in _V4_KINDS},
            adjust=_v4_sparse,
            extra=hyper_connections,
            extra_once=_hyper_head,
            ffn=lambda f, h: f.size("moe_intermediate_size"),
            known=(
                "hc_sinkhorn_iters",
                "compress_rates",
                "compress_ratios",
                "compress_rope_theta",
                "mlp_layer_types",
                "num_hash_layers",
                "qk_rope_head_dim",
            ),
        ),
        "dots3_note_text": Decoder(
            gate="head",
            mixers={"indexed_attention": lambda fields, attention: attention},
            adjust=_own_latent,
            experts=Experts(grouped=True, router_bias=True),
            extra=lambda f: f.size("qk_rope_head_dim"),
            query_key_value_bias="attention_bias",
            output_bias="attention_bias",
            known=("per_layer_config",),
        ),
        "gemma3n_text": replace(
            _GEMMA,
            adjust=_gemma3n,
            extra=_own_input,
            embedding_extra=_own_inputs,
            ffn=lambda f, h: 1,
            types=every(("sliding_window_pattern",), 5),
            known=(
                "altup_active_idx",
                "altup_correct_scale",
                "activation_sparsity_pattern",
                "altup_coef_clip",
                "altup_lr_multiplier",
                "intermediate_size",
            ),
        ),
        "gemma4_text": replace(
            _GEMMA,
            adjust=_gemma4,
            extra=_own_input,
            embedding_extra=_own_inputs,
            known=("per_layer_config", "global_head_dim", "num_global_key_value_heads", "attention_k_eq_v"),
        ),
        "gemma4_unified_text": replace(
            _GEMMA,
            adjust=_gemma4,
            extra=_own_input,
            embedding_extra=_own_inputs,
            known=("per_layer_config", "global_head_dim", "num_global_key_value_heads", "attention_k_eq_v"),
        ),
        "longcat_flash": DoubleLayers(),
        "mllama_text_model": Decoder(
            types=_cross_types,
            mixers={"cross": _cross},
            embedding_extra=lambda f: 8 * f.size("hidden_size"),
            known=("cross_attention_layers",),
        ),
        "zamba": SharedBlocks(),
        "zamba2": SharedBlocks(second=True),
    }
)
"""Families by ``model_type``."""
