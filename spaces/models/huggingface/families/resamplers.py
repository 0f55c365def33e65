"""Layers between an encoder and a language model: learned queries that attend to the encoder's output."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from forerun.spaces.models.huggingface.attentions import multi_head
from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields
from forerun.spaces.models.huggingface.towers import Image
from forerun.spaces.models.model import Attention, FeedForward, Layer
from forerun.spaces.models.shapes import default_head_dim

Resampler: TypeAlias = Callable[[Fields, Image, int], tuple[tuple[Layer, ...], int]]
"""Function that makes layers, and counts parameters outside them. Its arguments are the outer fields of a
configuration, the encoder, and the width of the language model."""


def _q_former(*, part: str = "qformer_config", words: bool = False, sounds: bool = False) -> Resampler:
    """Make a Q-Former (arXiv 2301.12597, section 3.1): BERT's layers over learned queries.

    Every few layers also attend to the encoder's output. ``words``: the instruction is a further input, with a separate
    table and feed-forwards (arXiv 2305.06500). ``sounds``: the number of queries is the number of tokens in a window of
    audio after downsampling.
    """

    def resampler(fields: Fields, image: Image, hidden: int) -> tuple[tuple[Layer, ...], int]:
        inner = fields.part(part, "blip_2_qformer")
        width, heads = inner.size("hidden_size"), inner.size("num_attention_heads")
        period, other = inner.size("cross_attention_frequency", 2), inner.size("encoder_hidden_size", image.width)
        count = inner.size("num_hidden_layers", most=MOST_LAYERS)
        vocab, positions = inner.size("vocab_size", 30522), inner.size("max_position_embeddings", 512)
        inner.raw("use_qformer_text_input")
        queries = tokens = fields.size("num_query_tokens", 32)
        if sounds:
            rate = fields.size("downsample_rate", 5)
            queries, tokens = fields.size("window_size", 15) // rate, max(image.patches // rate, 1)
        mlp = FeedForward(hidden=inner.size("intermediate_size"), gated=False, bias=True)
        attention = multi_head(heads, default_head_dim(fields.source, width, heads), bias=True)
        word_layer = 2 * width * mlp.hidden + mlp.hidden + 3 * width if words else 0  # feed-forward and norm for words
        one = Layer(
            name="queries",
            count=1,
            mixer=attention,
            mlp=mlp,
            norm_bias=True,
            hidden=width,
            tokens=tokens,
            extra=word_layer,
        )
        cross = Layer(
            name="queries-cross",
            count=1,
            mixer=replace(attention, key_input_width=other),
            mlp=None,
            norms=1,
            norm_bias=True,
            hidden=width,
            tokens=tokens,
        )
        layers = tuple(layer for index in range(count) for layer in ((one,) if index % period else (one, cross)))
        table = (vocab + positions) * width if words else 0
        return layers, queries * width + 2 * width + table + (width + 1) * hidden

    return resampler


def _perceiver(fields: Fields, image: Image, hidden: int) -> tuple[tuple[Layer, ...], int]:
    """Read Idefics 2 (arXiv 2405.02246, section 3.2): a gated MLP, and latents that attend to patches and latents."""
    part = fields.part("perceiver_config", "idefics2_perceiver")
    latents, head_dim = part.size("resampler_n_latents", 64), part.size("resampler_head_dim", 96)
    part.accept("hidden_size", "qk_layer_norms_perceiver")
    layer = Layer(
        name="latents",
        count=part.size("resampler_depth", 3, most=MOST_LAYERS),
        mixer=Attention(
            heads=part.size("resampler_n_heads", 16),
            kv_heads=part.size("num_key_value_heads", 4),
            head_dim=head_dim,
            value_head_dim=head_dim,
            causal=False,
        ),
        mlp=FeedForward(hidden=4 * hidden, gated=True),
        norms=3,
        hidden=hidden,
        tokens=latents + image.patches,
    )
    inner = fields.parts.get("text_config", fields).size("intermediate_size", 4 * hidden)
    return (layer,), latents * hidden + hidden + 2 * image.width * inner + inner * hidden


def _kosmos(fields: Fields, image: Image, hidden: int) -> tuple[tuple[Layer, ...], int]:
    """Read Kosmos-2 (arXiv 2306.14824, section 3): a linear layer, and one attention of learned queries to patches."""
    queries = fields.size("latent_query_num", 64)
    heads = fields.parts.get("text_config", fields).size("num_attention_heads")
    mixer = multi_head(heads, default_head_dim(fields.source, hidden, heads), bias=True)
    layer = Layer(name="queries", count=1, mixer=mixer, mlp=None, norms=0, hidden=hidden, tokens=queries)
    return (layer,), queries * hidden + (image.width + 1) * hidden


RESAMPLERS: Mapping[str, Resampler] = MappingProxyType(
    {
        "kosmos": _kosmos,
        "perceiver": _perceiver,
        "q_former": _q_former(),
        "q_former_of_sound": _q_former(part="projector_config", sounds=True),
        "q_former_with_words": _q_former(words=True),
    }
)
"""Resamplers by their names in the tables."""
