"""Models of two parts with a configuration each: an encoder and a decoder that attends to it, or two encoders."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.families.audio_encoders import AUDIO_ENCODERS
from forerun.spaces.models.huggingface.families.classifiers import Classifier, classifiers
from forerun.spaces.models.huggingface.families.encoder_decoders import encoder_decoders
from forerun.spaces.models.huggingface.families.image_encoders import IMAGE_ENCODERS
from forerun.spaces.models.huggingface.families.part_readers import Reader, encoders, text_defaults, text_reader, texts
from forerun.spaces.models.huggingface.fields import Fields, unused
from forerun.spaces.models.huggingface.formulas import linear
from forerun.spaces.models.huggingface.tables import decoders, token_encoders, towers
from forerun.spaces.models.huggingface.towers import Image
from forerun.spaces.models.model import Attention, Layer, Model


@cache
def _decoders() -> Mapping[str, Reader]:
    """Return the decoders by model type; BERT's descendants are read as bidirectional."""
    return {
        **texts(),
        **token_encoders(),
        "blip_text_model": token_encoders()["_blip_text"],
        "pix2struct_text_model": decoders()["_pix2struct_text"],
        "pp_formulanet_text": encoder_decoders()["_formulanet_decoder"],
        "trocr": encoder_decoders()["trocr"],
        "mbart": encoder_decoders()["_mbart_decoder"],
    }


_WITHOUT_POOLER = {**IMAGE_ENCODERS, **AUDIO_ENCODERS}
"""Encoders without a pooler: only plain stacks have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttending:
    """An encoder of images or words, and a decoder that attends to its output."""

    encoder: str
    """Default type of the encoder."""
    decoder: str
    """Default type of the decoder."""
    parts: tuple[str, str] = ("vision_config", "text_config")
    """Fields with the configurations of both."""
    pooled: bool = False
    """Whether the encoder has a pooler."""
    projected: bool = False
    """Whether the encoder's output is projected to the decoder's width."""
    harmless: tuple[str, ...] = ()
    """Fields without an effect on the model."""

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``: the encoder's layers first."""
        image, table = self._encoder(fields, name)
        part = fields.part(self.parts[1], self.decoder)
        kind = str(part.values.get("model_type", self.decoder))
        reader = _decoders().get(kind)
        if reader is None:
            raise RequestError(f"{fields.source}: forerun has no decoder of the type {kind[:60]!r}")
        part.accept("is_decoder", "add_cross_attention")
        reads = [part.raw(one) for one in ("encoder_hidden_size", "cross_attention_hidden_size")]
        text = reader.read(part, name)
        fields.accept("tie_word_embeddings", *self.harmless)
        width = image.width if any(reads) and image.width != text.hidden else None
        if width is None and image.width != text.hidden and not self.projected:
            table += (image.width + 1) * text.hidden
        layers = tuple(_crossing(layer, width) for layer in text.layers)
        return replace(
            text,
            layers=image.layers + layers,
            encoder_layers=sum(layer.count for layer in image.layers),
            embedding_extra=text.embedding_extra + image.outside + table,
        )

    def _encoder(self, fields: Fields, name: str) -> tuple[Image, int]:
        """Make the encoder, and count the parameters of its tables if it reads words."""
        part = fields.part(self.parts[0], self.encoder)
        kind = str(part.values.get("model_type", self.encoder))
        kind = self.encoder if kind == fields.raw("model_type") else kind
        classifier = classifiers().get(kind)
        read = classifier.tower.read if isinstance(classifier, Classifier) else encoders().get(kind)
        if read is not None:
            image = read(part)
            pooler = (image.width + 1) * image.width if self.pooled and kind not in _WITHOUT_POOLER else 0
            return image, pooler
        reader = token_encoders().get(kind)
        if reader is None:
            raise RequestError(f"{fields.source}: forerun has no encoder of the type {kind[:60]!r}")
        text = reader.read(part, name)
        layers = tuple(replace(layer, hidden=text.hidden) for layer in text.layers)
        rows = text.vocab + text.learned_positions + text.token_types + 2 + text.hidden + 1  # and norm and pooler
        return Image(width=text.hidden, layers=layers, outside=0, patch_inputs=0, patches=0), rows * text.hidden


def _crossing(layer: Layer, width: int | None, norms: int = 1) -> Layer:
    """Add cross attention to an encoder of ``width`` (None: equal), and ``norms`` norms, to a decoder layer."""
    if layer.cross_attention is not None:
        return replace(layer, cross_attention=replace(layer.cross_attention, key_input_width=width))
    attention = layer.attention
    cross: Attention = replace(attention, causal=False, window=None, key_input_width=width)
    return replace(layer, mixer=replace(attention, causal=True), cross_attention=cross, norms=layer.norms + norms)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoStacks:
    """An encoder and a decoder of the same family, each with its configuration (T5Gemma)."""

    text: str
    norms: int

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``: the encoder's layers first."""
        encoder, decoder = (self._stack(fields, side, name) for side in ("encoder", "decoder"))
        fields.raw("vocab_size")
        two_ways = [replace(layer, mixer=replace(layer.attention, causal=False)) for layer in encoder.layers]
        width = None if encoder.hidden == decoder.hidden else encoder.hidden
        first = tuple(replace(layer, name=f"encoder-{layer.name}", hidden=width) for layer in two_ways)
        crossing = tuple(_crossing(layer, width, self.norms) for layer in decoder.layers)
        return replace(
            decoder,
            layers=first + crossing,
            encoder_layers=encoder.layer_count,
            embedding_extra=encoder.vocab * encoder.hidden + encoder.hidden,
            tied_embeddings=fields.flag("tie_word_embeddings", True),
        )

    def _stack(self, fields: Fields, side: str, name: str) -> Model:
        part = fields.part(side, self.text, text_defaults)
        part.accept("is_decoder", "cross_attention_hidden_size")
        return text_reader(str(part.values.get("model_type", self.text)), fields.source).read(part, name)


CROSS_ATTENDING: Mapping[str, CrossAttending | TwoStacks] = MappingProxyType(
    {
        "blip": CrossAttending(
            encoder="blip_vision_model",
            decoder="blip_text_model",
            harmless=("image_text_hidden_size", "projection_dim", "label_smoothing"),
        ),
        "encoder-decoder": CrossAttending(encoder="bert", decoder="bert", parts=("encoder", "decoder"), pooled=True),
        "pix2struct": CrossAttending(
            encoder="pix2struct_vision_model", decoder="pix2struct_text_model", harmless=("is_vqa",)
        ),
        "pp_formulanet": CrossAttending(encoder="pp_formulanet_vision", decoder="pp_formulanet_text", projected=True),
        "vision-encoder-decoder": CrossAttending(
            encoder="vit", decoder="bert", parts=("encoder", "decoder"), pooled=True
        ),
        "t5gemma": TwoStacks(text="t5_gemma_module", norms=2),
    }
)
"""Families by ``model_type``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DualEncoder:
    """A text and an image encoder whose outputs are projected to one width and compared."""

    kind: str
    """Model type, the prefix of both parts' types."""
    text: str = "_clip_text"
    """Table entry of the text encoder."""
    projections: bool = True
    """Whether both outputs are projected; False: only the text's, to the width of images (SigLIP)."""
    harmless: tuple[str, ...] = ()
    """Fields without an effect on the model."""

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``: the image encoder's layers first.

        If the configuration names a classifier, the model is the image encoder before it.
        """
        image_type = f"{self.kind}_vision_model"
        if any("ImageClassification" in one for one in fields.listed_or_none("architectures", str) or ()):
            fields.read.update(fields.values)  # all other fields describe omitted parts
            part = fields.part("vision_config", image_type)
            return Classifier(tower=towers()[image_type]).read(fields, name, part)
        text = token_encoders()[self.text].read(fields.part("text_config", f"{self.kind}_text_model"), name)
        fields.accept(*self.harmless)
        image = towers()[image_type].read(fields.part("vision_config", image_type))
        width = fields.size("projection_dim", 512) if self.projections else 0
        between = width * (text.hidden + image.width) if self.projections else linear(text.hidden, text.hidden)
        return replace(text, layers=image.layers + text.layers, embedding_extra=image.outside + between)


DUAL_ENCODERS: Mapping[str, DualEncoder] = MappingProxyType(
    {
        family.kind: family
        for family in (
            DualEncoder(kind="altclip", text="_altclip_text"),
            DualEncoder(kind="chinese_clip", text="_chinese_clip_text"),
            DualEncoder(kind="clip"),
            DualEncoder(kind="clipseg", harmless=unused("clipseg")),
            DualEncoder(kind="metaclip_2"),
            DualEncoder(kind="siglip", text="_siglip_text", projections=False),
            DualEncoder(kind="siglip2", text="_siglip_text", projections=False),
        )
    }
)
"""Families by ``model_type``."""
