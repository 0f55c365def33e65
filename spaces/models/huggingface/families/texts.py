"""Readers of the parts of a multimodal configuration: language models and encoders by their types."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.defaults import class_defaults
from forerun.spaces.models.huggingface.families import audio, encoder_decoders, frames, mixed, vision
from forerun.spaces.models.huggingface.families.irregular_decoders import IRREGULAR
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.tables import decoders, model_types, token_encoders
from forerun.spaces.models.huggingface.towers import Image
from forerun.spaces.models.model import Model


class Reader(Protocol):
    """A family: makes a model of the fields of a configuration."""

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``."""


@cache
def texts() -> Mapping[str, Reader]:
    """Return the language models that may follow an encoder, by model type."""
    table = decoders()
    bart = encoder_decoders.TABLE["bart"]
    others = {"bart": bart, "florence2_language": bart, "modernbert": token_encoders()["modernbert"]}
    return {**{kind: table[kind] for kind in model_types(table)}, **IRREGULAR, **others}


def text_reader(model_type: str, source: str) -> Reader:
    """The reader of a language model's type.

    Raises:
        RequestError: it is not known.
    """
    found = texts().get(model_type)
    if found is None:
        raise RequestError(f"{source}: unknown model_type {model_type[:60]!r} of the language model")
    return found


def text_defaults(model_type: str) -> Mapping[str, Any]:
    """What a language model's class fills in, and what its family says where a configuration does not."""
    family = texts().get(model_type)
    return {**class_defaults(model_type), **getattr(family, "defaults", {})}


class Encoder(Protocol):
    """A family of encoders: makes layers of the fields of a configuration."""

    def read(self, fields: Fields, *, beside: bool) -> Image:
        """The encoder that the configuration describes; ``beside``: it stands beside a language model."""


TOWERS: Mapping[str, Encoder] = MappingProxyType({**vision.TOWERS, **audio.TOWERS, **mixed.TOWERS, **frames.TOWERS})
