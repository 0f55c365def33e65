"""Encoders over tokens: BERT and its descendants, with their masked-language-model heads."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.layer_types import FULL, SLIDING
from forerun.spaces.models.model import Layer

_BERT = Decoder(
    tied=True,
    causal=False,
    gated=False,
    norm_bias=True,
    mlp_bias=True,
    query_key_value_bias=True,
    output_bias=True,
    learned_positions=0,
    token_types=True,
    embedding_norm=True,
    final_norm=False,
    head_transform=True,
    lm_head_bias=True,
)
_PRE_NORM = replace(_BERT, embedding_norm=False, final_norm=True)
_MODERN = Decoder(
    tied=True,
    causal=False,
    embedding_norm=True,
    head_transform=True,
    lm_head_bias="decoder_bias",
    mlp_bias="mlp_bias",
    query_key_value_bias="attention_bias",
    output_bias="attention_bias",
    known=("local_attention", "global_attn_every_n_layers", "sliding_window", "norm_bias", "classifier_bias"),
)


def _pooler(fields: Fields) -> int:
    width = fields.size("hidden_size")
    return width * width + width


def _shared(fields: Fields, layer: Layer, index: int) -> Layer:
    """ALBERT: all layers of a group have one layer's weights."""
    return replace(layer, shared_weights=index >= fields.size("num_hidden_groups", 1))


def _modern_types(fields: Fields, count: int) -> list[str]:
    """Every third layer sees everything; the others ``local_attention`` tokens."""
    period = fields.optional_size("global_attn_every_n_layers") or 3
    return [SLIDING if index % period else FULL for index in range(count)]


def _adapters(fields: Fields) -> int:
    """X-MOD: one bottleneck for each language in each layer."""
    hidden = fields.size("hidden_size")
    narrow = hidden // fields.size("adapter_reduction_factor", 2)
    return len(fields.listed("languages", str) or ("one",)) * (2 * hidden * narrow + narrow + hidden)


def _global_attention(fields: Fields) -> int:
    """Longformer: projections of their own for tokens that attend to everything."""
    hidden = fields.size("hidden_size")
    return 3 * (hidden * hidden + hidden)


def _rembert_head(fields: Fields) -> int:
    """A head of another width than the layers, with a table of its own."""
    hidden, width, vocab = fields.size("hidden_size"), fields.size("output_embedding_size"), fields.size("vocab_size")
    return vocab * (width - hidden) + hidden * width + 3 * width


def _layout(fields: Fields) -> int:
    """LayoutLM: tables of the four coordinates of a word's box, and a pooler."""
    return 4 * fields.size("max_2d_position_embeddings") * fields.size("hidden_size") + _pooler(fields)


def _glyphs(fields: Fields) -> int:
    """RoCBert: tables of sounds and shapes, mapped to the model's width."""
    hidden = fields.size("hidden_size")
    sound, shape = fields.size("pronunciation_embed_dim"), fields.size("shape_embed_dim")
    tables = fields.size("pronunciation_vocab_size") * sound + fields.size("shape_vocab_size") * shape
    return tables + (hidden + sound + shape + 1) * hidden


_XLM = replace(
    _BERT, token_types=False, head_transform=False, default_ffn_multiple=4, ffn=lambda fields, hidden: 4 * hidden
)


def _relative(fields: Fields) -> int:
    """XLNet: a product of relative positions, three biases of queries and a table of segments in each layer."""
    hidden = fields.size("hidden_size")
    return hidden * hidden + 5 * hidden


def _two_stream_bias(fields: Fields) -> int:
    return fields.size("hidden_size")


def _cell_types(fields: Fields) -> int:
    """TAPAS: a table for each of the ways in which a cell is described."""
    rows = sum(fields.listed("type_vocab_sizes", int) or ())
    return int(rows) * fields.size("hidden_size")


def _esm_positions(fields: Fields) -> int:
    """ESM: a table of positions unless they are rotary, and a norm of embeddings where it is asked for."""
    rows = fields.size("max_position_embeddings") if fields.text("position_embedding_type") == "absolute" else 0
    norm = 2 if fields.flag("emb_layer_norm_before", False) else 0
    return (rows + norm) * fields.size("hidden_size")


TABLE: Mapping[str, Decoder] = MappingProxyType(
    {
        "albert": replace(_BERT, embedding_width="embedding_size", adjust=_shared, known=("inner_group_num",)),
        "bert": _BERT,
        "bert-generation": replace(_BERT, token_types=False, head_transform=False),
        "big_bird": replace(
            _BERT, query_key_value_bias="use_bias", known=("block_size", "num_random_blocks"), extra_once=_pooler
        ),
        "camembert": _BERT,
        "data2vec-text": _BERT,
        "deberta": replace(
            _BERT, known=("legacy", "max_relative_positions", "pooler_hidden_size", "position_biased_input")
        ),
        "deberta-v2": replace(
            _BERT, known=("legacy", "max_relative_positions", "pooler_hidden_size", "position_biased_input")
        ),
        "distilbert": replace(_BERT, token_types=False, ffn=lambda f, h: f.size("hidden_dim")),
        "electra": replace(_BERT, embedding_width="embedding_size"),
        "ernie": replace(_BERT, known=("task_type_vocab_size",)),
        "esm": replace(
            _PRE_NORM,
            token_types=False,
            learned_positions=None,
            embedding_extra=_esm_positions,
            extra_once=lambda f: f.size("num_hidden_layers") * f.size("num_attention_heads") + 1,  # contacts
            known=("max_position_embeddings", "token_dropout", "esmfold_config", "is_folding_model", "vocab_list"),
        ),
        "eurobert": Decoder(
            causal=False, query_key_value_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias"
        ),
        "gte": replace(
            _BERT, gated=True, mlp_bias=False, learned_positions=None, extra=lambda f: f.size("hidden_size")
        ),
        "ibert": replace(_BERT, known=("quant_mode",)),
        "jina_embeddings_v3": replace(_BERT, learned_positions=None),
        "layoutlm": replace(_BERT, embedding_extra=_layout),
        "longformer": replace(_BERT, extra=_global_attention, known=("attention_window",)),
        "megatron-bert": _PRE_NORM,
        "modernbert": replace(_MODERN, types=_modern_types, sizes={"sliding_window": 128}),
        "modernbert-decoder": replace(_MODERN, causal=True, types=_modern_types),
        "mpnet": replace(
            _BERT,
            token_types=False,
            extra_once=lambda f: f.size("relative_attention_num_buckets") * f.size("num_attention_heads"),
        ),
        "mra": replace(
            _BERT,
            known=("block_per_row", "approx_mode", "initial_prior_first_n_blocks", "initial_prior_diagonal_n_blocks"),
        ),
        "nomic_bert": replace(
            _BERT,
            gated=True,
            mlp_bias=False,
            query_key_value_bias=False,
            output_bias=False,
            learned_positions=None,
            lm_head_bias=True,
        ),
        "rembert": replace(
            _BERT, tied=False, embedding_width="input_embedding_size", head_transform=False, extra_once=_rembert_head
        ),
        "roberta": _BERT,
        "roberta-prelayernorm": replace(_PRE_NORM, embedding_norm=True),
        "roc_bert": replace(
            _BERT, embedding_extra=_glyphs, known=("concat_input", "enable_pronunciation", "enable_shape")
        ),
        "roformer": replace(_BERT, learned_positions=None, known=("embedding_size",)),
        "flaubert": _XLM,
        "tapas": replace(
            _BERT,
            token_types=False,
            embedding_extra=_cell_types,
            known=(
                "aggregation_loss_weight",
                "aggregation_temperature",
                "answer_loss_importance",
                "max_num_columns",
                "max_num_rows",
                "reset_position_index_per_cell",
                "select_one_column",
                "temperature",
                "type_vocab_sizes",
                "positive_label_weight",
                "num_aggregation_labels",
                "use_answer_as_supervision",
                "huber_loss_delta",
            ),
        ),
        "xlm": _XLM,
        "xlm-roberta": _BERT,
        "xlnet": Decoder(
            tied=True,
            gated=False,
            norm_bias=True,
            mlp_bias=True,
            final_norm=False,
            lm_head_bias=True,
            extra=_relative,
            extra_once=_two_stream_bias,
        ),
        "xlm-roberta-xl": _PRE_NORM,
        "xmod": replace(_BERT, extra=_adapters, known=("adapter_reuse_layer_norm", "ln_before_adapter")),
    }
)
"""Families by ``model_type``."""
