"""An encoder of images or of words, and a decoder whose every layer also attends to what it made."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.families.classifiers import Classifier, classifiers
from forerun.spaces.models.huggingface.families.encoder_decoders import TABLE as BARTS
from forerun.spaces.models.huggingface.families.encoder_decoders import BartLike
from forerun.spaces.models.huggingface.families.part_readers import Reader, encoders, texts
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.tables import decoders, token_encoders
from forerun.spaces.models.huggingface.towers import Image, Tower
from forerun.spaces.models.model import Attention, Layer, Model


@cache
def _decoders() -> Mapping[str, Reader]:
    """Return the decoders by model type; those of BERT are read without their direction."""
    return {
        **texts(),
        **token_encoders(),
        "blip_text_model": token_encoders()["_blip_text"],
        "pix2struct_text_model": decoders()["_pix2struct_text"],
        "pp_formulanet_text": BartLike(
            alone=True,
            final_norm=True,
            known=("encoder_attention_heads", "encoder_layers", "encoder_ffn_dim", "is_decoder"),
        ),
        "trocr": BARTS["trocr"],
        "mbart": BartLike(alone=True, final_norm=True),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Captioner:
    """The encoder of ``parts[0]`` (image towers, stacks of words) before the decoder of ``parts[1]``, of the types
    ``encoder`` and ``decoder`` where the parts name none. ``pooled``: the
    encoder has a pooler. ``projected``: it ends with the decoder's width."""

    encoder: str
    decoder: str
    parts: tuple[str, str] = ("vision_config", "text_config")
    pooled: bool = False
    projected: bool = False
    known: tuple[str, ...] = ()

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``: the encoder's layers first."""
        image, table = self._encoder(fields, name)
        part = fields.part(self.parts[1], self.decoder)
        kind = str(part.values.get("model_type", self.decoder))
        reader = _decoders().get(kind)
        if reader is None:
            raise RequestError(f"{fields.source}: forerun has no decoder of the type {kind[:60]!r}")
        for unused in ("is_decoder", "add_cross_attention"):
            part.raw(unused)
        reads = [part.raw(one) for one in ("encoder_hidden_size", "cross_attention_hidden_size")]
        text = reader.read(part, name)
        for unused in ("tie_word_embeddings", *self.known):
            fields.raw(unused)
        own = image.width if any(reads) and image.width != text.hidden else None
        if own is None and image.width != text.hidden and not self.projected:
            table += (image.width + 1) * text.hidden
        layers = tuple(_crossing(layer, own) for layer in text.layers)
        return replace(
            text,
            layers=image.layers + layers,
            encoder_layers=sum(layer.count for layer in image.layers),
            embedding_extra=text.embedding_extra + image.outside + table,
        )

    def _encoder(self, fields: Fields, name: str) -> tuple[Image, int]:
        """The encoder, and the parameters of its tables where it reads words."""
        part = fields.part(self.parts[0], self.encoder)
        kind = str(part.values.get("model_type", self.encoder))
        kind = self.encoder if kind == fields.raw("model_type") else kind
        classifier = classifiers().get(kind)
        tower = classifier.tower if isinstance(classifier, Classifier) else encoders().get(kind)
        if tower is not None:
            image = tower.read(part)
            pooler = (image.width + 1) * image.width if self.pooled and isinstance(tower, Tower) else 0
            return image, pooler
        reader = token_encoders().get(kind)
        if reader is None:
            raise RequestError(f"{fields.source}: forerun has no encoder of the type {kind[:60]!r}")
        words = reader.read(part, name)
        layers = tuple(replace(layer, hidden=words.hidden) for layer in words.layers)
        rows = words.vocab + words.learned_positions + words.token_types + 2 + words.hidden + 1  # and norm and pooler
        return Image(width=words.hidden, layers=layers, outside=0, patch_inputs=0, patches=0), rows * words.hidden


def _crossing(layer: Layer, width: int | None) -> Layer:
    """A decoder layer that also attends to an encoder of ``width`` columns (None: as wide)."""
    if layer.cross_attention is not None:
        return replace(layer, cross_attention=replace(layer.cross_attention, key_input_width=width))
    attention = layer.attention
    cross: Attention = replace(attention, causal=False, window=None, key_input_width=width)
    return replace(layer, mixer=replace(attention, causal=True), cross_attention=cross, norms=layer.norms + 1)


TABLE: Mapping[str, Captioner] = MappingProxyType(
    {
        "blip": Captioner(
            encoder="blip_vision_model",
            decoder="blip_text_model",
            known=("image_text_hidden_size", "projection_dim", "label_smoothing"),
        ),
        "encoder-decoder": Captioner(encoder="bert", decoder="bert", parts=("encoder", "decoder"), pooled=True),
        "pix2struct": Captioner(encoder="pix2struct_vision_model", decoder="pix2struct_text_model", known=("is_vqa",)),
        "pp_formulanet": Captioner(encoder="pp_formulanet_vision", decoder="pp_formulanet_text", projected=True),
        "vision-encoder-decoder": Captioner(encoder="vit", decoder="bert", parts=("encoder", "decoder"), pooled=True),
    }
)
"""Families by ``model_type``."""
