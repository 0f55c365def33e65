"""Connectors between an encoder and a language model.

Projectors are counted by formulas of ``data/projectors.yaml`` and by functions. Resamplers are layers of learned
queries that attend to the encoder's output.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import TypeAlias

from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.models.huggingface.attentions import multi_head
from forerun.spaces.models.huggingface.fields import MOST_LAYERS, Fields
from forerun.spaces.models.huggingface.formulas import Count, Formula
from forerun.spaces.models.huggingface.pyramid import sizes
from forerun.spaces.models.huggingface.towers import Image
from forerun.spaces.models.model import Attention, FeedForward, Layer
from forerun.spaces.models.shapes import default_head_dim


def projector_of(name: str) -> Count:
    """Return the projector that a table calls ``name``, a function of the widths ``image`` and ``hidden``."""
    return _FUNCTIONS.get(name) or Formula(_formulas()[name])


@cache
def _formulas() -> Mapping[str, str]:
    return dict(package_yaml("forerun.spaces.models.huggingface", "data", "projectors.yaml"))


def _molmo(fields: Fields, image: int, hidden: int) -> int:
    """Count Molmo 2: attention pools neighbouring patches over outputs of several layers, before a gated MLP."""
    part = fields.part("adapter_config", "molmo2_adapter")
    part.accept("attention_bias", "mlp_bias", "num_key_value_heads", "hidden_act")
    width, layers = part.size("hidden_size"), len(part.listed("vision_feature_layer", int) or (0, 0))
    inner, heads = part.size("intermediate_size"), part.size("num_attention_heads") * part.size("head_dim")
    out = part.optional_size("text_hidden_size") or hidden
    pooled = 3 * (layers * image + 1) * heads + (heads + 1) * width
    return pooled + 2 * width * inner + inner * out


def _janus(fields: Fields, image: int, hidden: int) -> int:
    """Count Janus: tokens of generated images and their autoencoder, which training does not run."""
    part = fields.part("vq_config", "janus_vqgan")
    part.raw("num_patches")
    width = part.size("projection_dim")
    tokens, embedded = part.size("num_embeddings"), part.size("embed_dim")
    made = (embedded + 1) * width + (part.size("num_hidden_layers") - 1) * (width + 1) * width
    made += (part.size("image_token_embed_dim") + 1) * width + (width + 1) * tokens + 2 * tokens * embedded
    return made + _quantizer(part, embedded)


def _quantizer(part: Fields, embedded: int) -> int:
    """Count residual convolutions from an image to a latent and back (arXiv 2012.09841, table 7)."""
    base, latent, blocks = (
        part.size("base_channels"),
        part.size("latent_channels"),
        part.size("num_res_blocks"),
    )
    multiples = sizes(part, "channel_multiplier") if part.given("channel_multiplier") else (1, 1, 2, 2, 4)
    widths = [base * one for one in multiples]
    last = widths[-1]

    def conv(inputs: int, outputs: int) -> int:
        return (9 * inputs + 1) * outputs

    def stage(inputs: int, outputs: int, number: int) -> int:
        shortcut = (inputs + 1) * outputs if inputs != outputs else 0
        first = 2 * (inputs + outputs) + conv(inputs, outputs) + conv(outputs, outputs) + shortcut
        return first + (number - 1) * (4 * outputs + 2 * conv(outputs, outputs))

    attention = 2 * last + 4 * (last + 1) * last
    down = sum(stage(before, width, blocks) for before, width in zip([base, *widths], widths, strict=False))
    up = sum(
        stage(before, width, blocks + 1) for before, width in zip([last, *widths[::-1]], widths[::-1], strict=False)
    )
    between = sum(conv(width, width) for width in [*widths[:-1], *widths[1:]])
    middle = 2 * (stage(last, last, 2) + attention) + (2 * blocks + 1) * attention
    ends = (
        conv(part.size("in_channels"), base)
        + 2 * last
        + conv(last, latent * (1 + part.flag("double_latent", False)))
        + (latent + 1) * embedded
    )
    ends += (embedded + 1) * latent + conv(latent, last) + 2 * base + conv(base, part.size("out_channels"))
    return down + up + between + middle + ends


def _transcribe(fields: Fields, image: int, hidden: int) -> int:
    """Count Nemotron 3.5 Transcribe: a linear layer, and a word-timestamp encoder, which training does not run."""
    part = fields.part("word_timestamp_config", "nemotron3_5_transcribe_word_timestamp")
    part.accept("blank_token_id", "max_position_embeddings", "num_key_value_heads", "residual_scale")
    width, inner = part.size("hidden_size"), part.size("intermediate_size")
    head_dim = width // part.size("num_attention_heads")
    layer = (4 * width + 5) * width + 4 * head_dim + (2 * width + 1) * inner + width
    around = part.size("upsampling_factor") * width * width + 5 * width + (width + 1) * part.size("vocab_size")
    return (image + 1) * hidden + part.size("num_hidden_layers") * layer + around


_FUNCTIONS: Mapping[str, Count] = MappingProxyType({"janus": _janus, "molmo": _molmo, "transcribe": _transcribe})


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
