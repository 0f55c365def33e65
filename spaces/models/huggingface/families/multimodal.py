"""Language models with encoders of images or audio before them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any

from forerun.spaces.models.huggingface.families.connectors import RESAMPLERS, Resampler, projector_of
from forerun.spaces.models.huggingface.families.part_readers import read_encoder, text_defaults, text_reader
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.formulas import Count
from forerun.spaces.models.huggingface.tables import table
from forerun.spaces.models.huggingface.towers import Image
from forerun.spaces.models.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Multimodal:
    """A language model with an encoder before it; an entry of ``data/multimodal.yaml``."""

    text: str
    """Default type of the language model."""
    encoder: str
    """Default type of the encoder."""
    part: str = "vision_config"
    """Field with the encoder's configuration."""
    copies: int = 1
    """Number of equal encoders."""
    more_encoders: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Types of further encoders by their fields."""
    projector: Count | None = None
    """Parameters between encoder and language model."""
    resampler: Resampler | None = None
    """Layers between encoder and language model."""
    harmless: tuple[str, ...] = ()
    """Fields without an effect on the model."""

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``: the encoder's layers first.

        The encoder is omitted if the user ignores the field with its configuration.
        """
        text = self._text(fields, name)
        fields.accept(*self.harmless, "vocab_size", "hidden_size")
        if self.part in fields.ignored:
            fields.read.update(fields.values)  # all other fields describe omitted parts
            return text
        image = self._encoder(fields, self.part, self.encoder)
        more = [self._encoder(fields, *other) for other in self.more_encoders.items()]
        between = self.projector(fields, image=image.width, hidden=text.hidden) if self.projector else 0
        middle, outside = self.resampler(fields, image, text.hidden) if self.resampler else ((), 0)
        layers = self.copies * image.layers + middle + tuple(layer for one in more for layer in one.layers)
        outside += self.copies * image.outside + between + sum(one.outside for one in more)
        return replace(
            text,
            layers=layers + text.layers,
            embedding_extra=text.embedding_extra + outside,
            encoder_layers=text.encoder_layers and text.encoder_layers + sum(layer.count for layer in layers),
        )

    def _encoder(self, fields: Fields, name: str, default: str) -> Image:
        part = fields.part(name, default)
        kind = str(part.values.get("model_type", default))
        if kind == fields.raw("model_type"):
            kind = default  # some files repeat the outer type
        return read_encoder(part, kind, fields.source)

    def _text(self, fields: Fields, name: str) -> Model:
        """Make the language model of ``text_config``, or of the outer fields in older files."""
        if not fields.given("text_config") and fields.given("num_hidden_layers"):
            return text_reader(self.text, fields.source).read(fields, name)
        part = fields.part("text_config", self.text, text_defaults)
        if fields.given("tie_word_embeddings"):
            part.values["tie_word_embeddings"] = fields.flag("tie_word_embeddings", False)
        return text_reader(str(part.values.get("model_type", self.text)), fields.source).read(part, name)


@cache
def multimodal() -> Mapping[str, Multimodal]:
    """Return the language models with an encoder before them, by model type."""
    conversions: dict[str, Callable[[Any], object]] = {
        "harmless": tuple,
        "projector": projector_of,
        "resampler": RESAMPLERS.__getitem__,
    }
    return table(Multimodal, "multimodal", conversions=conversions)
