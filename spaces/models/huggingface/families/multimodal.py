"""Language models with an encoder of images or audio beside them, and pairs of encoders (CLIP)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.defaults import class_defaults
from forerun.spaces.models.huggingface.families import projectors
from forerun.spaces.models.huggingface.families.pairs import Pair, PatchesAsTokens, TwoStacks
from forerun.spaces.models.huggingface.families.texts import TOWERS, Reader, text_defaults, text_reader
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.towers import Image
from forerun.spaces.models.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionLanguage:
    """An encoder of images (or of audio, by ``part``) before a language model; ``projector``: parameters
    between them. ``copies``: so many encoders alike. ``text``, ``vision``: types where the parts name none. ``audio``:
    type of a second encoder, of ``audio_config``."""

    text: str
    vision: str
    projector: projectors.Projector | None = None
    known: tuple[str, ...] = ()
    part: str = "vision_config"
    copies: int = 1
    audio: str | None = None

    def read(self, fields: Fields, name: str) -> Model:
        """The model that the configuration describes, called ``name``: the encoder's layers first; without
        an encoder where the user ignores ``vision_config``."""
        text = self._text(fields, name)
        for unused in (*self.known, "vocab_size", "hidden_size"):
            fields.raw(unused)
        if self.part in fields.ignored:
            fields.read.update(fields.values)  # all else describes what is left out
            return text
        image = self._encoder(fields, self.part, self.vision)
        between = self.projector(fields, image, text.hidden) if self.projector else 0
        sounds = [self._encoder(fields, "audio_config", self.audio)] if self.audio else []
        return replace(
            text,
            layers=self.copies * image.layers + tuple(layer for one in sounds for layer in one.layers) + text.layers,
            embedding_extra=text.embedding_extra
            + self.copies * image.outside
            + between
            + sum(one.outside for one in sounds),
        )

    def _encoder(self, fields: Fields, name: str, default: str) -> Image:
        part = fields.part(name, class_defaults, default)
        kind = str(part.values.get("model_type", default))
        if kind == fields.raw("model_type"):
            kind = default  # some files repeat the outer type
        if kind not in TOWERS:
            raise RequestError(f"{fields.source}: forerun has no encoder of the type {kind[:60]!r}")
        return TOWERS[kind].read(part, beside=True)

    def _text(self, fields: Fields, name: str) -> Model:
        """The language model: of ``text_config``, or of the outer fields in files from before that was nested."""
        if not fields.given("text_config") and fields.given("num_hidden_layers"):
            return text_reader(self.text, fields.source).read(fields, name)
        part = fields.part("text_config", text_defaults, self.text)
        if fields.given("tie_word_embeddings"):
            part.values["tie_word_embeddings"] = fields.flag("tie_word_embeddings", False)
        return text_reader(str(part.values.get("model_type", self.text)), fields.source).read(part, name)


_PROJECTED = (
    "mm_hidden_size",
    "mm_projector_type",
    "text_hidden_size",
    "use_unified_vision_chunk",
    "media_placeholder_token_id",
    "image_seq_length",
    "multimodal_projector_bias",
    "projection_dim",
    "projection_hidden_size",
)

TABLE: Mapping[str, Reader] = MappingProxyType(
    {
        "aria": VisionLanguage(
            text="aria_text",
            vision="idefics3_vision",
            projector=projectors.resampler,
            known=("projector_patch_to_query_dict",),
        ),
        "audioflamingo3": VisionLanguage(
            text="qwen2",
            vision="audioflamingo3_encoder",
            projector=projectors.linear2,
            part="audio_config",
            known=("projector_bias",),
        ),
        "cosmos3_edge": VisionLanguage(
            text="cosmos3_edge_text", vision="cosmos3_edge_vision", projector=projectors.cosmos
        ),
        "glmasr": VisionLanguage(
            text="llama", vision="glmasr_encoder", projector=projectors.four_sounds, part="audio_config"
        ),
        "got_ocr2": VisionLanguage(
            text="qwen2", vision="got_ocr2_vision", projector=projectors.got, known=("image_seq_length",)
        ),
        "granite_docling": VisionLanguage(
            text="granite_docling_text",
            vision="granite_docling_vision",
            known=("density_router_hidden_size", "density_router_threshold"),
        ),
        "mllama": VisionLanguage(text="mllama_text_model", vision="mllama_vision_model", projector=projectors.mllama),
        "modernvbert": VisionLanguage(
            text="modernbert", vision="siglip_vision_model", projector=projectors.shuffled, known=("classifier_bias",)
        ),
        "molmo2": VisionLanguage(text="molmo2_text", vision="molmo2_vision", projector=projectors.molmo),
        "ovis2": VisionLanguage(
            text="qwen2",
            vision="ovis2_vision",
            projector=projectors.visual_words,
            known=("visual_indicator_token_ids",),
        ),
        "pp_chart2table": VisionLanguage(
            text="qwen2", vision="pp_chart2table_vision", projector=projectors.got, known=("image_seq_length",)
        ),
        "qwen2_5_omni_thinker": VisionLanguage(
            text="qwen2_5_omni_text",
            vision="qwen2_5_omni_vision_encoder",
            audio="qwen2_5_omni_audio_encoder",
            known=("position_id_per_seconds", "seconds_per_chunk"),
        ),
        "qwen3_asr": VisionLanguage(
            text="qwen3",
            vision="qwen3_asr_encoder",
            part="audio_config",
            known=("token_classification_bias", "timestamp_segment_time"),
        ),
        "qwen3_omni_moe_thinker": VisionLanguage(
            text="qwen3_omni_moe_text",
            vision="qwen3_omni_moe_vision_encoder",
            audio="qwen3_omni_moe_audio_encoder",
            known=("position_id_per_seconds",),
        ),
        "video_llama_3": VisionLanguage(text="qwen2", vision="video_llama_3_vision", projector=projectors.linear2),
        "deepseek_vl": VisionLanguage(text="llama", vision="siglip_vision_model", projector=projectors.linear2),
        "exaone4_5": VisionLanguage(text="exaone4", vision="exaone4_5_vision"),
        "lighton_ocr": VisionLanguage(text="qwen3", vision="pixtral", projector=projectors.mistral3),
        "musicflamingo": VisionLanguage(
            text="qwen2",
            vision="audioflamingo3_encoder",
            projector=projectors.linear2,
            part="audio_config",
            known=("projector_bias", "audio_rotary_dim", "audio_frame_step", "head_dim"),
        ),
        "qwen2_audio": VisionLanguage(
            text="qwen2", vision="qwen2_audio_encoder", projector=projectors.one(True), part="audio_config"
        ),
        "video_llava": VisionLanguage(
            text="llama",
            vision="clip_vision_model",
            projector=projectors.linear2,
            copies=2,
            known=("image_seq_length", "video_seq_length", "multimodal_projector_bias"),
        ),
        "vipllava": VisionLanguage(
            text="llama", vision="clip_vision_model", projector=projectors.levels, known=("image_seq_length",)
        ),
        "voxtral": VisionLanguage(
            text="llama", vision="voxtral_encoder", projector=projectors.four_tokens, part="audio_config"
        ),
        "clip": Pair(text="clip_text_model", vision="clip_vision_model"),
        "cosmos3_omni": VisionLanguage(text="qwen3_vl_text", vision="qwen3_vl_vision"),
        "fuyu": PatchesAsTokens(text="persimmon"),
        "glm_ocr": VisionLanguage(text="glm_ocr_text", vision="glm_ocr_vision"),
        "paddleocr_vl": VisionLanguage(
            text="paddleocr_vl_text", vision="paddleocr_vl_vision", projector=projectors.kimi
        ),
        "glm46v": VisionLanguage(text="glm4v_text", vision="glm4v_vision"),
        "glmga": VisionLanguage(text="glm4v_text", vision="glm4v_vision"),
        "hyperclovax_vision_v2": VisionLanguage(
            text="hyperclovax", vision="qwen2_5_vl_vision", projector=projectors.one(True)
        ),
        "metaclip_2": Pair(text="metaclip_2_text_model", vision="metaclip_2_vision_model"),
        "qianfan_ocr": VisionLanguage(
            text="qwen3", vision="qianfan_ocr_vision", projector=projectors.internvl, known=_PROJECTED
        ),
        "shieldgemma2": VisionLanguage(text="gemma3_text", vision="siglip_vision_model", projector=projectors.gemma3),
        "siglip2": Pair(text="siglip2_text_model", vision="siglip2_vision_model", causal=False, projections=False),
        "t5gemma": TwoStacks(text="t5_gemma_module", norms=2),
        "cohere2_vision": VisionLanguage(text="cohere2", vision="siglip_vision_model", projector=projectors.cohere),
        "ernie4_5_vl_moe": VisionLanguage(
            text="ernie4_5_vl_moe_text", vision="ernie4_5_vl_moe_vision", projector=projectors.ernie
        ),
        "gemma3": VisionLanguage(text="gemma3_text", vision="siglip_vision_model", projector=projectors.gemma3),
        "glm4v": VisionLanguage(text="glm4v_text", vision="glm4v_vision"),
        "glm4v_moe": VisionLanguage(text="glm4v_moe_text", vision="glm4v_moe_vision"),
        "idefics3": VisionLanguage(text="llama", vision="idefics3_vision", projector=projectors.idefics3),
        "internvl": VisionLanguage(
            text="qwen2", vision="internvl_vision", projector=projectors.internvl, known=_PROJECTED
        ),
        "kimi_k25": VisionLanguage(
            text="deepseek_v3", vision="kimi_k25_vision", projector=projectors.kimi, known=_PROJECTED
        ),
        "lfm2_vl": VisionLanguage(
            text="lfm2", vision="siglip2_vision_model", projector=projectors.lfm2, known=("projector_bias",)
        ),
        "llama4": VisionLanguage(text="llama4_text", vision="llama4_vision_model", projector=projectors.llama4),
        "llava": VisionLanguage(
            text="llama", vision="clip_vision_model", projector=projectors.linear2, known=_PROJECTED
        ),
        "llava_next_video": VisionLanguage(
            text="llama",
            vision="clip_vision_model",
            projector=projectors.linear2,
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
            projector=projectors.linear2,
            known=(*_PROJECTED, "image_grid_pinpoints", "use_image_newline_parameter"),
        ),
        "llava_next": VisionLanguage(
            text="llama",
            vision="clip_vision_model",
            projector=projectors.linear2,
            known=(*_PROJECTED, "image_grid_pinpoints", "use_image_newline_parameter"),
        ),
        "minimax_m3_vl": VisionLanguage(
            text="minimax_m3_vl_text",
            vision="minimax_m3_vl_vision",
            projector=projectors.minimax,
            known=("merged_hidden_size",),
        ),
        "mistral3": VisionLanguage(text="mistral", vision="pixtral", projector=projectors.mistral3),
        "paligemma": VisionLanguage(
            text="gemma", vision="siglip_vision_model", projector=projectors.one(True), known=_PROJECTED
        ),
        "qwen2_5_vl": VisionLanguage(text="qwen2_5_vl_text", vision="qwen2_5_vl_vision"),
        "qwen2_vl": VisionLanguage(text="qwen2_vl_text", vision="qwen2_vl_vision"),
        "qwen3_5": VisionLanguage(text="qwen3_5_text", vision="qwen3_5_vision"),
        "qwen3_5_moe": VisionLanguage(text="qwen3_5_moe_text", vision="qwen3_5_moe_vision"),
        "qwen3_vl": VisionLanguage(text="qwen3_vl_text", vision="qwen3_vl_vision"),
        "qwen3_vl_moe": VisionLanguage(text="qwen3_vl_moe_text", vision="qwen3_vl_moe_vision"),
        "siglip": Pair(text="siglip_text_model", vision="siglip_vision_model", causal=False, projections=False),
        "smolvlm": VisionLanguage(text="llama", vision="smolvlm_vision", projector=projectors.idefics3),
        "step3p7": VisionLanguage(text="step3p5", vision="step3p5_vision", projector=projectors.step),
    }
)
"""Families by ``model_type``."""
