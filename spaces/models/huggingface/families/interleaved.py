"""Language models that read an image in a way of their own: among their tokens, or by layers between theirs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.families.multimodal import multimodal
from forerun.spaces.models.huggingface.families.part_readers import Reader
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.tables import decoders, token_encoders, towers
from forerun.spaces.models.layer_runs import joined
from forerun.spaces.models.model import Layer, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSequence:
    """GIT (arXiv 2205.14100): BERT's layers over the features of an image and the words in one sequence."""

    vision: str

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``: the encoder's layers first."""
        image = towers()[self.vision].read(fields.part("vision_config", self.vision))
        text = token_encoders()["_git_text"].read(fields, name)
        fields.raw("num_image_with_embedding")
        between = (image.width + 1) * text.hidden + 2 * text.hidden
        return replace(text, layers=image.layers + text.layers, embedding_extra=image.outside + between)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedCross:
    """Idefics (after Flamingo, arXiv 2204.14198, section 2.2): before every few layers of the language model, one that
    attends to the image, with a feed-forward of its own and gates on both."""

    vision: str

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``: the encoder's layers first."""
        image = towers()[self.vision].read(fields.part("vision_config", self.vision))
        for unused in ("freeze_text_layers", "freeze_vision_layers", "use_resampler", "alphas_initializer_range"):
            fields.raw(unused)
        if fields.flag("use_resampler", False):
            raise fields.refusal("use_resampler", "attention to a fixed set of latents before it is not modelled")
        fields.raw("perceiver_config")
        text = decoders()["_idefics_text"].read(fields, name)
        own = text.layers[0]
        cross = Layer(
            name="cross",
            count=1,
            mixer=replace(own.attention, causal=False, key_input_width=image.width),
            mlp=own.mlp,
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
        """The model that the configuration describes, called ``name``: its vision-language model's layers first."""
        whole = fields.part("vlm_config", "paligemma")
        model = multimodal()["paligemma"].read(whole, name)
        part = fields.part("dit_config", "gemma")
        for unused in ("is_causal", "use_bidirectional_attention"):
            part.raw(unused)
        actions = decoders()["gemma"].read(part, name)
        steps = fields.size("chunk_size", 50)
        for unused in ("max_period", "min_period", "num_inference_steps", "loss_reduction"):
            fields.raw(unused)
        for unused in (
            "time_sampling_beta_alpha",
            "time_sampling_beta_beta",
            "time_sampling_offset",
            "time_sampling_scale",
        ):
            fields.raw(unused)
        layers = tuple(replace(one, name="action", hidden=actions.hidden, tokens=steps) for one in actions.layers)
        state, action, width = fields.size("max_state_dim", 32), fields.size("max_action_dim", 32), actions.hidden
        made = (state + action + 2) * width + (3 * width + 2) * width + (width + 1) * action
        outside = actions.vocab * width + width + made
        return replace(model, layers=model.layers + layers, extra_parameters=model.extra_parameters + outside)


TABLE: Mapping[str, Reader] = MappingProxyType(
    {
        "git": OneSequence(vision="git_vision_model"),
        "idefics": GatedCross(vision="idefics_vision"),
        "pi0": WithActions(),
    }
)
"""Families by ``model_type``."""
