"""Language models with an image encoder beside them, and pairs of encoders (CLIP)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.defaults import class_defaults
from forerun.spaces.models.huggingface.families import dense, hybrids, latent, moe, special
from forerun.spaces.models.huggingface.families.vision import TOWERS
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.towers import Image
from forerun.spaces.models.model import Model


class Reader(Protocol):
    """A family: makes a model of the fields of a configuration."""

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``."""


ALIKE = {
    "ernie4_5_vl_moe_text": "ernie4_5_moe",
    "glm4v_text": "glm4",
    "glm4v_moe_text": "glm4_moe",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_vl_text": "qwen3",
}
_STEP = Decoder(
    query_key_norm=True,
    gate="head",
    known=(
        "share_expert_dim",
        "num_sliding_attention_heads",
        "per_layer_config",
    ),
    adjust=moe.step_shared,
)
TEXTS: Mapping[str, Reader] = MappingProxyType(
    {
        **dense.TABLE,
        **moe.TABLE,
        **latent.TABLE,
        **hybrids.TABLE,
        **special.TABLE,
        "step3p5": _STEP,
    }
)
"""Language models that may stand beside an encoder."""


def text_reader(model_type: str, source: str) -> Reader:
    """The reader of a language model's type.

    Raises:
        RequestError: it is not known.
    """
    found = TEXTS.get(ALIKE.get(model_type, model_type))
    if found is None:
        raise RequestError(f"{source}: unknown model_type {model_type[:60]!r} of the language model")
    return found


Projector = Callable[[Fields, Image, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionLanguage:
    """An image encoder before a language model; ``projector``: parameters between them, from the outer fields, the
    image encoder and the language model's width. ``text``, ``vision``: types where the parts name none."""

    text: str
    vision: str
    projector: Projector | None = None
    known: tuple[str, ...] = ()

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``: the encoder's layers first; without
        an encoder where the user ignores ``vision_config``."""
        tied = fields.raw("tie_word_embeddings")
        part = fields.part("text_config", class_defaults, self.text)
        if isinstance(tied, bool):
            part.values["tie_word_embeddings"] = tied
        kind = str(part.values.get("model_type", self.text))
        text = text_reader(kind, fields.source).read(part, name)
        for unused in (*self.known, "vocab_size", "hidden_size"):
            fields.raw(unused)
        if "vision_config" in fields.ignored:
            fields.read.update(fields.values)  # all else describes what is left out
            return text
        vision = fields.part("vision_config", class_defaults, self.vision)
        kind = str(vision.values.get("model_type", self.vision))
        if kind not in TOWERS:
            raise RequestError(f"{fields.source}: forerun has no image encoder of the type {kind[:60]!r}")
        image = TOWERS[kind].read(vision, beside=True)
        between = self.projector(fields, image, text.hidden) if self.projector else 0
        return replace(
            text,
            layers=image.layers + text.layers,
            embedding_extra=text.embedding_extra + image.outside + between,
        )


def _linear2(fields: Fields, image: Image, hidden: int) -> int:
    """Two products with biases (LLaVA)."""
    return image.width * hidden + hidden + hidden * hidden + hidden


def _gemma3(fields: Fields, image: Image, hidden: int) -> int:
    fields.raw("mm_tokens_per_image")
    return image.width * hidden + image.width


def _mistral3(fields: Fields, image: Image, hidden: int) -> int:
    width, side = image.width, fields.size("spatial_merge_size", 2)
    bias = 2 * hidden if fields.flag("multimodal_projector_bias", False) else 0
    return width + width * side * side * width + width * hidden + hidden * hidden + bias


def _internvl(fields: Fields, image: Image, hidden: int) -> int:
    width = int(image.width / fields.number("downsample_ratio", 0.5) ** 2)
    return 2 * width + width * hidden + hidden + hidden * hidden + hidden


def _kimi(fields: Fields, image: Image, hidden: int) -> int:
    joined = 4 * image.width
    return 2 * image.width + joined * joined + joined + joined * hidden + hidden


def _minimax(fields: Fields, image: Image, hidden: int) -> int:
    inner, merged = fields.size("projector_hidden_size"), fields.optional_size("merged_hidden_size") or 4 * hidden
    return image.width * inner + inner + inner * hidden + hidden + merged * inner + inner + inner * hidden + hidden


def _ernie(fields: Fields, image: Image, hidden: int) -> int:
    """A spatial and a temporal resampler of two products each, and one to the language model's width."""
    joined = 4 * image.width
    one = joined * joined + joined
    return (one + one + 2 * joined) + (2 * joined * joined + joined + one + 2 * joined) + joined * hidden + 2 * hidden


def _idefics3(fields: Fields, image: Image, hidden: int) -> int:
    return image.width * fields.size("scale_factor", 2) ** 2 * hidden


def _cohere(fields: Fields, image: Image, hidden: int) -> int:
    inner, joined = fields.size("alignment_intermediate_size"), image.width * fields.size("downsample_factor", 2) ** 2
    return joined * inner + inner + inner // 2 * hidden + hidden


def _lfm2(fields: Fields, image: Image, hidden: int) -> int:
    inner, joined = fields.size("projector_hidden_size"), image.width * fields.size("downsample_factor", 2) ** 2
    norm = 2 * joined if fields.flag("projector_use_layernorm", True) else 0
    return norm + joined * inner + inner + inner * hidden + hidden


def _one(bias: bool) -> Projector:
    return lambda fields, image, hidden: image.width * hidden + (hidden if bias else 0)


def _step(fields: Fields, image: Image, hidden: int) -> int:
    return 4 * image.width * hidden


def _llama4(fields: Fields, image: Image, hidden: int) -> int:
    return 7680 * hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A text and an image encoder whose outputs are projected to one width and compared (CLIP, SigLIP)."""

    text: str
    vision: str
    causal: bool = True
    projections: bool = True

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``: the image encoder's layers first."""
        part = fields.part("text_config", class_defaults, self.text)
        text = Decoder(
            tied=True,
            gated=False,
            norm_bias=True,
            mlp_bias=True,
            query_key_value_bias=True,
            output_bias=True,
            learned_positions=0,
            causal=self.causal,
            head=False,
            known=("projection_dim", "projection_size"),
        ).read(part, name)
        vision = fields.part("vision_config", class_defaults, self.vision)
        image = TOWERS[self.vision].read(vision, beside=True)
        width = fields.size("projection_dim", 512) if self.projections else 0
        between = width * (text.hidden + image.width)
        if not self.projections:
            between = text.hidden * text.hidden + text.hidden  # SigLIP brings text alone to the image's width
        return replace(text, layers=image.layers + text.layers, embedding_extra=image.outside + between)


_PROJECTED = ("image_seq_length", "multimodal_projector_bias", "projection_dim", "projection_hidden_size")

TABLE: Mapping[str, Reader] = MappingProxyType(
    {
        "clip": Pair(text="clip_text_model", vision="clip_vision_model"),
        "cohere2_vision": VisionLanguage(text="cohere2", vision="siglip_vision_model", projector=_cohere),
        "ernie4_5_vl_moe": VisionLanguage(
            text="ernie4_5_vl_moe_text", vision="ernie4_5_vl_moe_vision", projector=_ernie
        ),
        "gemma3": VisionLanguage(text="gemma3_text", vision="siglip_vision_model", projector=_gemma3),
        "glm4v": VisionLanguage(text="glm4v_text", vision="glm4v_vision"),
        "glm4v_moe": VisionLanguage(text="glm4v_moe_text", vision="glm4v_moe_vision"),
        "idefics3": VisionLanguage(text="llama", vision="idefics3_vision", projector=_idefics3),
        "internvl": VisionLanguage(text="qwen2", vision="internvl_vision", projector=_internvl, known=_PROJECTED),
        "kimi_k25": VisionLanguage(text="deepseek_v3", vision="kimi_k25_vision", projector=_kimi, known=_PROJECTED),
        "lfm2_vl": VisionLanguage(
            text="lfm2", vision="siglip2_vision_model", projector=_lfm2, known=("projector_bias",)
        ),
        "llama4": VisionLanguage(text="llama4_text", vision="llama4_vision_model", projector=_llama4),
        "llava": VisionLanguage(text="llama", vision="clip_vision_model", projector=_linear2, known=_PROJECTED),
        "llava_next_video": VisionLanguage(
            text="llama",
            vision="clip_vision_model",
            projector=_linear2,
            known=(
                *_PROJECTED,
                "image_grid_pinpoints",
                "use_image_newline_parameter",
                "spatial_pool_mode",
                "spatial_pool_stride",
                "video_seq_length",
            ),
        ),
        "llava_onevision": VisionLanguage(
            text="qwen2",
            vision="siglip_vision_model",
            projector=_linear2,
            known=(*_PROJECTED, "image_grid_pinpoints", "use_image_newline_parameter"),
        ),
        "llava_next": VisionLanguage(
            text="llama",
            vision="clip_vision_model",
            projector=_linear2,
            known=(*_PROJECTED, "image_grid_pinpoints", "use_image_newline_parameter"),
        ),
        "minimax_m3_vl": VisionLanguage(
            text="minimax_m3_vl_text", vision="minimax_m3_vl_vision", projector=_minimax, known=("merged_hidden_size",)
        ),
        "mistral3": VisionLanguage(text="mistral", vision="pixtral", projector=_mistral3),
        "paligemma": VisionLanguage(text="gemma", vision="siglip_vision_model", projector=_one(True), known=_PROJECTED),
        "qwen2_5_vl": VisionLanguage(text="qwen2_5_vl_text", vision="qwen2_5_vl_vision"),
        "qwen2_vl": VisionLanguage(text="qwen2_vl_text", vision="qwen2_vl_vision"),
        "qwen3_5": VisionLanguage(text="qwen3_5_text", vision="qwen3_5_vision"),
        "qwen3_5_moe": VisionLanguage(text="qwen3_5_moe_text", vision="qwen3_5_moe_vision"),
        "qwen3_vl": VisionLanguage(text="qwen3_vl_text", vision="qwen3_vl_vision"),
        "qwen3_vl_moe": VisionLanguage(text="qwen3_vl_moe_text", vision="qwen3_vl_moe_vision"),
        "siglip": Pair(text="siglip_text_model", vision="siglip_vision_model", causal=False, projections=False),
        "smolvlm": VisionLanguage(text="llama", vision="smolvlm_vision", projector=_idefics3),
        "step3p7": VisionLanguage(text="step3p5", vision="step3p5_vision", projector=_step),
    }
)
"""Families by ``model_type``."""
