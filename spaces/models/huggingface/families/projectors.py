"""What stands between an encoder and a language model: parameters that bring its outputs to the model's width."""

from collections.abc import Callable
from typing import TypeAlias

from forerun.spaces.models.huggingface.defaults import class_defaults
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.pyramid import sizes
from forerun.spaces.models.huggingface.towers import Image

Projector: TypeAlias = Callable[[Fields, Image, int], int]
"""Parameters, from the outer fields of the configuration, the encoder and the language model's width."""


def linear2(fields: Fields, image: Image, hidden: int) -> int:
    """Two products with biases (LLaVA)."""
    return image.width * hidden + hidden + hidden * hidden + hidden


def gemma3(fields: Fields, image: Image, hidden: int) -> int:
    fields.raw("mm_tokens_per_image")
    return image.width * hidden + image.width


def mistral3(fields: Fields, image: Image, hidden: int) -> int:
    width, side = image.width, fields.size("spatial_merge_size", 2)
    bias = 2 * hidden if fields.flag("multimodal_projector_bias", False) else 0
    return width + width * side * side * width + width * hidden + hidden * hidden + bias


def internvl(fields: Fields, image: Image, hidden: int) -> int:
    width = int(image.width / fields.number("downsample_ratio", 0.5) ** 2)
    return 2 * width + width * hidden + hidden + hidden * hidden + hidden


def kimi(fields: Fields, image: Image, hidden: int) -> int:
    joined = 4 * image.width
    return 2 * image.width + joined * joined + joined + joined * hidden + hidden


def minimax(fields: Fields, image: Image, hidden: int) -> int:
    inner, merged = fields.size("projector_hidden_size"), fields.optional_size("merged_hidden_size") or 4 * hidden
    return image.width * inner + inner + inner * hidden + hidden + merged * inner + inner + inner * hidden + hidden


def ernie(fields: Fields, image: Image, hidden: int) -> int:
    """A spatial and a temporal resampler of two products each, and one to the language model's width."""
    joined = 4 * image.width
    one = joined * joined + joined
    return (one + one + 2 * joined) + (2 * joined * joined + joined + one + 2 * joined) + joined * hidden + 2 * hidden


def idefics3(fields: Fields, image: Image, hidden: int) -> int:
    return image.width * fields.size("scale_factor", 2) ** 2 * hidden


def cohere(fields: Fields, image: Image, hidden: int) -> int:
    inner, joined = fields.size("alignment_intermediate_size"), image.width * fields.size("downsample_factor", 2) ** 2
    return joined * inner + inner + inner // 2 * hidden + hidden


def lfm2(fields: Fields, image: Image, hidden: int) -> int:
    inner, joined = fields.size("projector_hidden_size"), image.width * fields.size("downsample_factor", 2) ** 2
    norm = 2 * joined if fields.flag("projector_use_layernorm", True) else 0
    return norm + joined * inner + inner + inner * hidden + hidden


def one(bias: bool) -> Projector:
    return lambda fields, image, hidden: image.width * hidden + (hidden if bias else 0)


def step(fields: Fields, image: Image, hidden: int) -> int:
    return 4 * image.width * hidden


def llama4(fields: Fields, image: Image, hidden: int) -> int:
    return 7680 * hidden


def four_tokens(fields: Fields, image: Image, hidden: int) -> int:
    """Four neighbouring tokens joined, then two products without biases (Voxtral)."""
    return 4 * image.width * hidden + hidden * hidden


def levels(fields: Fields, image: Image, hidden: int) -> int:
    """Outputs of several layers joined and normalised, then two products (ViP-LLaVA)."""
    layers = fields.listed_or_none("vision_feature_layers", int) or fields.listed_or_none("vision_feature_layer", int)
    joined = image.width * len(layers or (0,))
    return 2 * joined + joined * hidden + hidden + hidden * hidden + hidden


def shuffled(fields: Fields, image: Image, hidden: int) -> int:
    """Positions joined, one product without a bias (ModernVBERT)."""
    return image.width * fields.size("pixel_shuffle_factor", 4) ** 2 * hidden


def got(fields: Fields, image: Image, hidden: int) -> int:
    """One product of what the encoder's convolutions make (GOT-OCR 2)."""
    return 4 * fields.parts["vision_config"].size("output_channels", 256) * hidden + hidden


def mllama(fields: Fields, image: Image, hidden: int) -> int:
    """One product of the outputs of several layers (Llama 3.2)."""
    return fields.parts["vision_config"].size("vision_output_dim", 7680) * hidden + hidden


def cosmos(fields: Fields, image: Image, hidden: int) -> int:
    """A norm, four patches joined, two products (Cosmos 3 Edge)."""
    inner = fields.size("projector_hidden_size")
    return 2 * image.width + (4 * image.width + 1) * inner + (inner + 1) * hidden


def molmo(fields: Fields, image: Image, hidden: int) -> int:
    """Neighbouring patches pooled by attention over the outputs of several layers, then a gated MLP (Molmo 2)."""
    part = fields.part("adapter_config", class_defaults, "molmo2_adapter")
    for unused in ("attention_bias", "mlp_bias", "num_key_value_heads", "hidden_act"):
        part.raw(unused)
    width, layers = part.size("hidden_size"), len(part.listed("vision_feature_layer", int) or (0, 0))
    inner, heads = part.size("intermediate_size"), part.size("num_attention_heads") * part.size("head_dim")
    out = part.optional_size("text_hidden_size") or hidden
    pooled = 3 * (layers * image.width + 1) * heads + (heads + 1) * width
    return pooled + 2 * width * inner + inner * out


def visual_words(fields: Fields, image: Image, hidden: int) -> int:
    """A table of visual words (Ovis 2)."""
    return fields.parts["vision_config"].size("vocab_size", 16384) * fields.size("hidden_size", hidden)


def four_sounds(fields: Fields, image: Image, hidden: int) -> int:
    """Four neighbouring sounds joined, then two products with biases, the first twice as wide (GLM-ASR)."""
    return (4 * image.width + 1) * 2 * hidden + (2 * hidden + 1) * hidden


def resampler(fields: Fields, image: Image, hidden: int) -> int:
    """Learned queries attend to the patches, twice projected; a feed-forward follows (Aria)."""
    width, queries = image.width, fields.size("max_value_projector_patch_to_query_dict", 256)
    attention = 3 * width * width + 3 * width * width + 3 * width + 2 * (width * width + width)
    return queries * width + attention + 6 * width + width * hidden + hidden * hidden


def merged_sounds(fields: Fields, image: Image, hidden: int) -> int:
    """Neighbouring sounds joined, two products with biases and a norm (MOSS)."""
    return (fields.size("audio_merge_size", 4) * image.width + 1) * hidden + (hidden + 1) * hidden + 2 * hidden


def four_patches(fields: Fields, image: Image, hidden: int) -> int:
    """A norm over four patches, a product as wide and one to the language model's width (MiniCPM-V 4.6)."""
    joined = 4 * image.width
    return 2 * joined + (joined + 1) * joined + (joined + 1) * hidden


def muse(fields: Fields, image: Image, hidden: int) -> int:
    """Two products of four joined patches, and one to the language model's width, without biases (Muse)."""
    inner = fields.size("projector_hidden_size", 4096)
    return (fields.size("out_hidden_size", 4 * image.width) + inner + hidden) * inner


def radio(fields: Fields, image: Image, hidden: int) -> int:
    """A norm over shuffled patches, two products without biases (Nemotron Nano VL)."""
    joined = int(image.width / fields.number("downsample_ratio", 0.5) ** 2)
    inner = fields.size("projector_hidden_size", 4096)
    return joined + joined * inner + inner * hidden


def lfm3(fields: Fields, image: Image, hidden: int) -> int:
    """A norm, four joined patches, two products (LFM3)."""
    inner = fields.size("projector_hidden_size")
    return 2 * image.width + (4 * image.width + 1) * inner + (inner + 1) * hidden


def two_resolutions(fields: Fields, image: Image, hidden: int) -> int:
    """SAM's neck and two convolutions once more for outputs from within, each encoder brought to half of the width, a
    product of both (DeepSeek-VL)."""
    part = fields.parts["high_res_vision_config"]
    width, out = part.size("hidden_size"), part.size("output_channels", 256)
    neck = width * out + 9 * out * out + 4 * out + 1
    return neck + (image.width + 1) * hidden // 2 + (4 * out + 1) * hidden // 2 + (hidden + 1) * hidden


def florence(fields: Fields, image: Image, hidden: int) -> int:
    """One product, a norm, tables of rows and columns (Florence-2)."""
    rows = fields.parts["vision_config"].size("max_position_embeddings", 50)
    return image.width * hidden + 2 * hidden + rows * image.width


def side_by_side(fields: Fields, image: Image, hidden: int) -> int:
    """One product of what both encoders made, vectors that part rows and views (DeepSeek-OCR)."""
    return (2 * image.width + 1) * hidden + 2 * hidden


def two_voices(fields: Fields, image: Image, hidden: int) -> int:
    """Two products and a norm for each of both encoders (VibeVoice)."""
    other = fields.parts["semantic_tokenizer_encoder_config"].size("hidden_size")
    return (image.width + other + 2) * hidden + 2 * hidden + 2 * (hidden + 1) * hidden


def phi4(fields: Fields, image: Image, hidden: int) -> int:
    """Two products of patches, two of sounds alone and two of sounds beside an image, and vectors that part rows and
    views (Phi-4)."""
    sound = fields.parts["audio_config"].size("hidden_size")
    return 2 * image.width + (image.width + 1 + 2 * (sound + 1)) * hidden + 3 * (hidden + 1) * hidden


def janus(fields: Fields, image: Image, hidden: int) -> int:
    """Tokens of images that are made, and the network that makes them of an image and an image of them, which training
    does not run (Janus)."""
    part = fields.part("vq_config", class_defaults, "janus_vqgan")
    part.raw("num_patches")
    width = part.size("projection_dim")
    tokens, embedded = part.size("num_embeddings"), part.size("embed_dim")
    made = (embedded + 1) * width + (part.size("num_hidden_layers") - 1) * (width + 1) * width
    made += (part.size("image_token_embed_dim") + 1) * width + (width + 1) * tokens + 2 * tokens * embedded
    return made + _quantizer(part, embedded)


def _quantizer(part: Fields, embedded: int) -> int:
    """Residual convolutions down to a latent of an image and up again (arXiv 2012.09841, table 7)."""
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


def transcribe(fields: Fields, image: Image, hidden: int) -> int:
    """One product; an encoder of the times of words, which training does not run (Nemotron 3.5 Transcribe)."""
    part = fields.part("word_timestamp_config", class_defaults, "nemotron3_5_transcribe_word_timestamp")
    for unused in ("blank_token_id", "max_position_embeddings", "num_key_value_heads", "residual_scale"):
        part.raw(unused)
    width, inner = part.size("hidden_size"), part.size("intermediate_size")
    head_dim = width // part.size("num_attention_heads")
    layer = (4 * width + 5) * width + 4 * head_dim + (2 * width + 1) * inner + width
    around = part.size("upsampling_factor") * width * width + 5 * width + (width + 1) * part.size("vocab_size")
    return (image.width + 1) * hidden + part.size("num_hidden_layers") * layer + around
