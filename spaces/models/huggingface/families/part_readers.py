"""Readers of the parts of a multimodal configuration: language models and encoders by their types."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.families.audio_encoders import AUDIO_ENCODERS
from forerun.spaces.models.huggingface.families.encoder_decoders import encoder_decoders
from forerun.spaces.models.huggingface.families.image_encoders import IMAGE_ENCODERS
from forerun.spaces.models.huggingface.families.irregular_decoders import IRREGULAR
from forerun.spaces.models.huggingface.fields import Fields, class_defaults
from forerun.spaces.models.huggingface.tables import decoders, public, token_encoders, towers
from forerun.spaces.models.huggingface.towers import Encoder, Image
from forerun.spaces.models.model import Model


class Reader(Protocol):
    """A family of models, made from the fields of a configuration."""

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``."""


@cache
def texts() -> Mapping[str, Reader]:
    """Return the language models that may follow an encoder, by model type."""
    bart = encoder_decoders()["bart"]
    others = {"bart": bart, "florence2_language": bart, "modernbert": token_encoders()["modernbert"]}
    return {**public(decoders()), **IRREGULAR, **others}


def text_reader(model_type: str, source: str) -> Reader:
    """Return the reader of a language model's type.

    Raises
    ------
    RequestError
        The type is unknown.
    """
    reader = texts().get(model_type)
    if reader is None:
        raise RequestError(f"{source}: unknown model_type {model_type[:60]!r} of the language model")
    return reader


def text_defaults(model_type: str) -> Mapping[str, Any]:
    """Return the defaults of a language model's class and family."""
    family = texts().get(model_type)
    return {**class_defaults(model_type), **getattr(family, "defaults", {})}


@cache
def encoders() -> Mapping[str, Encoder]:
    """Return the image and audio encoders that may precede a language model, by model type."""
    return {kind: tower.read for kind, tower in public(towers()).items()} | {**IMAGE_ENCODERS, **AUDIO_ENCODERS}


def read_encoder(part: Fields, kind: str, source: str) -> Image:
    """Make the encoder of a part of type ``kind``.

    Raises
    ------
    RequestError
        The type is unknown.
    """
    if kind not in encoders():
        raise RequestError(f"{source}: forerun has no encoder of the type {kind[:60]!r}")
    return encoders()[kind](part)
