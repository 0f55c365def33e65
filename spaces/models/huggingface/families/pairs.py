"""Models of two stacks that are neither a language model with an encoder before it nor a plain encoder-decoder."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.families.classifiers import Classifier
from forerun.spaces.models.huggingface.families.part_readers import text_defaults, text_reader
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.tables import token_encoders, towers
from forerun.spaces.models.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A text and an image encoder whose outputs are projected to one width and compared (CLIP, SigLIP).
    ``words``: the table entry of the text encoder."""

    text: str
    vision: str
    projections: bool = True
    words: str = "_clip_text"
    known: tuple[str, ...] = ()

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``: the image encoder's layers first, or that alone
        before a classifier where the configuration names one."""
        if any("ImageClassification" in str(one) for one in fields.raw("architectures") or ()):
            fields.read.update(fields.values)  # all else describes what is left out
            part = fields.part("vision_config", self.vision)
            return Classifier(tower=towers()[self.vision]).read(fields, name, part)
        part = fields.part("text_config", self.text)
        text = token_encoders()[self.words].read(part, name)
        for unused in self.known:
            fields.raw(unused)
        image = towers()[self.vision].read(fields.part("vision_config", self.vision))
        width = fields.size("projection_dim", 512) if self.projections else 0
        between = width * (text.hidden + image.width)
        if not self.projections:
            between = text.hidden * text.hidden + text.hidden  # SigLIP brings text alone to the image's width
        return replace(text, layers=image.layers + text.layers, embedding_extra=image.outside + between)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchesAsTokens:
    """A language model that reads patches of an image as tokens, through one product (Fuyu)."""

    text: str

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``."""
        part = fields.part("text_config", self.text, text_defaults)
        if fields.given("tie_word_embeddings"):
            part.values["tie_word_embeddings"] = fields.flag("tie_word_embeddings", False)
        text = text_reader(self.text, fields.source).read(part, name)
        fields.raw("image_size")
        patch = fields.size("patch_size") ** 2 * fields.size("num_channels", 3)
        return replace(text, embedding_extra=text.embedding_extra + (patch + 1) * text.hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoStacks:
    """An encoder and a decoder with configurations of their own (T5Gemma); the decoder's layers also attend to the
    encoder's output, with ``norms`` more norms."""

    text: str
    norms: int

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``: the encoder's layers first."""
        encoder, decoder = (self._stack(fields, side, name) for side in ("encoder", "decoder"))
        fields.raw("vocab_size")
        two_ways = [replace(layer, mixer=replace(layer.attention, causal=False)) for layer in encoder.layers]
        own = None if encoder.hidden == decoder.hidden else encoder.hidden
        first = tuple(replace(layer, name=f"encoder-{layer.name}", hidden=own) for layer in two_ways)
        crossing = tuple(
            replace(
                layer,
                cross_attention=replace(layer.attention, causal=False, window=None, key_input_width=own),
                norms=layer.norms + self.norms,
            )
            for layer in decoder.layers
        )
        return replace(
            decoder,
            layers=first + crossing,
            encoder_layers=encoder.layer_count,
            embedding_extra=encoder.vocab * encoder.hidden + encoder.hidden,
            tied_embeddings=fields.flag("tie_word_embeddings", True),
        )

    def _stack(self, fields: Fields, side: str, name: str) -> Model:
        part = fields.part(side, self.text, text_defaults)
        for unused in ("is_decoder", "cross_attention_hidden_size"):
            part.raw(unused)
        return text_reader(str(part.values.get("model_type", self.text)), fields.source).read(part, name)


TABLE: Mapping[str, Pair | PatchesAsTokens | TwoStacks] = MappingProxyType(
    {
        "clip": Pair(text="clip_text_model", vision="clip_vision_model"),
        "fuyu": PatchesAsTokens(text="persimmon"),
        "altclip": Pair(text="altclip_text_model", vision="altclip_vision_model", words="_altclip_text"),
        "chinese_clip": Pair(
            text="chinese_clip_text_model",
            vision="chinese_clip_vision_model",
            words="_chinese_clip_text",
        ),
        "clipseg": Pair(
            text="clipseg_text_model",
            vision="clipseg_vision_model",
            known=(
                "conditional_layer",
                "decoder_intermediate_size",
                "decoder_num_attention_heads",
                "extract_layers",
                "reduce_dim",
            ),
        ),
        "metaclip_2": Pair(text="metaclip_2_text_model", vision="metaclip_2_vision_model"),
        "siglip2": Pair(
            text="siglip2_text_model", vision="siglip2_vision_model", words="_siglip_text", projections=False
        ),
        "t5gemma": TwoStacks(text="t5_gemma_module", norms=2),
        "siglip": Pair(text="siglip_text_model", vision="siglip_vision_model", words="_siglip_text", projections=False),
    }
)
"""Families by ``model_type``."""
