"""Readers of the parts of a multimodal configuration: language models and encoders by their types."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.defaults import class_defaults
from forerun.spaces.models.huggingface.families import (
    audio,
    dense,
    encoder_decoders,
    encoders,
    frames,
    hybrids,
    latent,
    mixed,
    moe,
    nemotron,
    special,
    vision,
)
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.towers import Image
from forerun.spaces.models.model import Model


class Reader(Protocol):
    """A family: makes a model of the fields of a configuration."""

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``."""


ALIKE = {
    "granite_docling_text": "granite",
    "qwen2_5_omni_text": "qwen2",
    "cohere_compass_text": "cohere2",
    "deepseek_ocr2_text": "deepseek_v2",
    "granite4_vision_text": "granite",
    "hunyuan_vl_text": "hunyuan_v1_dense",
    "t5_gemma_module": "gemma2",
    "glm4v_text": "glm4",
    "glm_ocr_text": "glm4",
    "paddleocr_vl_text": "ernie4_5",
    "glm4v_moe_text": "glm4_moe",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_vl_text": "qwen3",
}
_OWN: Mapping[str, Reader] = MappingProxyType(
    {
        **dense.TABLE,
        **moe.TABLE,
        **latent.TABLE,
        **hybrids.TABLE,
        **nemotron.TABLE,
        **special.TABLE,
        "qwen3_omni_moe_text": replace(moe.QWEN3, floor_heads=True),
        "unlimited_ocr_text": replace(
            latent.TABLE["deepseek_v2"],
            mixers={"reference_sliding_attention": lambda f, a: replace(a, window=f.size("sliding_window"))},
            known=("sliding_window",),
        ),
        "phi4_multimodal": dense.TABLE["phi3"],
        "step3p5": moe.STEP,
        "cosmos3_edge_text": Decoder(gated=False, query_key_value_bias="attention_bias", output_bias="attention_bias"),
        "bart": encoder_decoders.TABLE["bart"],
        "florence2_language": encoder_decoders.TABLE["bart"],
        "modernbert": encoders.TABLE["modernbert"],
        "molmo2_text": Decoder(
            query_key_norm=True,
            query_key_value_bias="qkv_bias",
            embedding_extra=lambda f: f.size("additional_vocab_size", 128) * f.size("hidden_size"),
            known=("norm_after", "qk_norm_type", "rope_scaling_layers", "attention_bias"),
        ),
    }
)
TEXTS: Mapping[str, Reader] = MappingProxyType({**_OWN, **{kind: _OWN[like] for kind, like in ALIKE.items()}})
"""Language models that may stand beside an encoder."""


def text_reader(model_type: str, source: str) -> Reader:
    """The reader of a language model's type.

    Raises:
        RequestError: it is not known.
    """
    found = TEXTS.get(model_type)
    if found is None:
        raise RequestError(f"{source}: unknown model_type {model_type[:60]!r} of the language model")
    return found


def text_defaults(model_type: str) -> Mapping[str, Any]:
    """What a language model's class fills in, and what its family says where a configuration does not."""
    family = TEXTS.get(model_type)
    return {**class_defaults(model_type), **getattr(family, "sizes", {})}


class Encoder(Protocol):
    """A family of encoders: makes layers of the fields of a configuration."""

    def read(self, fields: Fields, *, beside: bool) -> Image:
        """The encoder that the configuration describes; ``beside``: it stands beside a language model."""


TOWERS: Mapping[str, Encoder] = MappingProxyType({**vision.TOWERS, **audio.TOWERS, **mixed.TOWERS, **frames.TOWERS})
