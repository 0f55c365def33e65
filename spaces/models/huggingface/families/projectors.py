"""Parameters between an encoder and a language model: formulas of ``data/projectors.yaml``, and functions."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.formulas import Count, Formula
from forerun.spaces.models.huggingface.pyramid import sizes


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
