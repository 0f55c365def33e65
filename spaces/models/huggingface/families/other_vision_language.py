"""Language models that read images as tokens or by additional layers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.families.multimodal import multimodal
from forerun.spaces.models.huggingface.families.part_readers import Reader, text_defaults, text_reader
from forerun.spaces.models.huggingface.fields import Fields, unused
from forerun.spaces.models.huggingface.tables import decoders, token_encoders, towers
from forerun.spaces.models.model import Layer, Model, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSequence:
    """GIT (arXiv 2205.14100): BERT's layers over one sequence of image features and text."""

    vision: str

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``: the encoder's layers first."""
        image = towers()[self.vision].read(fields.part("vision_config", self.vision))
        text = token_encoders()["_git_text"].read(fields, name)
        fields.raw("num_image_with_embedding")
        between = (image.width + 1) * text.hidden + 2 * text.hidden
        return replace(text, layers=image.layers + text.layers, embedding_extra=image.outside + between)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedCross:
    """Idefics (after Flamingo, arXiv 2204.14198, section 2.2).

    A layer that attends to the image, with its feed-forward and gates on both, precedes every few layers of the
    language model.
    """

    vision: str

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``: the encoder's layers first."""
        image = towers()[self.vision].read(fields.part("vision_config", self.vision))
        fields.accept("freeze_text_layers", "freeze_vision_layers", "use_resampler", "alphas_initializer_range")
        if fields.flag("use_resampler", False):
            raise fields.refusal("use_resampler", "attention to a fixed set of latents before it is not modelled")
        fields.raw("perceiver_config")
        text = decoders()["_idefics_text"].read(fields, name)
        first = text.layers[0]
        cross = Layer(
            name="cross",
            count=1,
            mixer=replace(first.attention, causal=False, key_input_width=image.width),
            mlp=first.mlp,
            extra=2,
        )
        period = fields.size("cross_layer_interval", 1)
        layers = [one for layer in text.layers for one in [replace(layer, count=1)] * layer.count]
        mixed = [
            one for index, layer in enumerate(layers) for one in ((cross, layer) if index % period == 0 else (layer,))
        ]
        more = (fields.optional_size("additional_vocab_size", least=0) or 0) * text.hidden * 2
        return replace(text, layers=image.layers + joined(mixed), embedding_extra=image.outside + more)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithActions:
    """pi0 (arXiv 2410.24164): a vision-language model, and a narrower decoder of actions that attends to its keys."""

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``: vision and language layers first."""
        model = multimodal()["paligemma"].read(fields.part("vlm_config", "paligemma"), name)
        part = fields.part("dit_config", "gemma")
        part.accept("is_causal", "use_bidirectional_attention")
        actions = decoders()["gemma"].read(part, name)
        steps = fields.size("chunk_size", 50)
        fields.accept(*unused("pi0"))
        layers = tuple(replace(one, name="action", hidden=actions.hidden, tokens=steps) for one in actions.layers)
        state, action, width = fields.size("max_state_dim", 32), fields.size("max_action_dim", 32), actions.hidden
        made = (state + action + 2) * width + (3 * width + 2) * width + (width + 1) * action
        outside = actions.vocab * width + width + made
        return replace(model, layers=model.layers + layers, extra_parameters=model.extra_parameters + outside)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchesAsTokens:
    """A language model that reads patches of an image as tokens, through one product (Fuyu)."""

    text: str

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``."""
        part = fields.part("text_config", self.text, text_defaults)
        if fields.given("tie_word_embeddings"):
            part.values["tie_word_embeddings"] = fields.flag("tie_word_embeddings", False)
        text = text_reader(self.text, fields.source).read(part, name)
        fields.raw("image_size")
        patch = fields.size("patch_size") ** 2 * fields.size("num_channels", 3)
        return replace(text, embedding_extra=text.embedding_extra + (patch + 1) * text.hidden)


OTHER_VISION_LANGUAGE: Mapping[str, Reader] = MappingProxyType(
    {
        "fuyu": PatchesAsTokens(text="persimmon"),
        "git": OneSequence(vision="git_vision_model"),
        "idefics": GatedCross(vision="idefics_vision"),
        "pi0": WithActions(),
    }
)
"""Families by ``model_type``."""
