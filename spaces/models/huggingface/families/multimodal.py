"""Language models with an encoder of images beside them."""

from collections.abc import Mapping
from types import MappingProxyType

from forerun.spaces.models.huggingface.families import projectors, queries
from forerun.spaces.models.huggingface.families.beside import VisionLanguage

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

_BLIP_KNOWN = ("image_text_hidden_size", "use_decoder_only_language_model")
_MINICPM = (
    "drop_vision_last_layer",
    "image_size",
    "insert_layer_id",
    "merge_kernel_size",
    "merger_times",
    "patch_size",
)

TABLE: Mapping[str, VisionLanguage] = MappingProxyType(
    {
        "aria": VisionLanguage(
            text="aria_text",
            vision="idefics3_vision",
            projector=projectors.resampler,
            known=("projector_patch_to_query_dict",),
        ),
        "cosmos3_edge": VisionLanguage(
            text="cosmos3_edge_text", vision="cosmos3_edge_vision", projector=projectors.cosmos
        ),
        "blip-2": VisionLanguage(
            text="opt", vision="blip_2_vision_model", bridge=queries.query_transformer(), known=_BLIP_KNOWN
        ),
        "dots3_note": VisionLanguage(
            text="dots3_note_text",
            vision="dots3_note_vision_encoder",
            others=(("audio_config", "dots3_note_audio_encoder"),),
            projector=projectors.kimi,
        ),
        "janus": VisionLanguage(text="llama", vision="janus_vision_model", projector=projectors.janus),
        "phi4_multimodal": VisionLanguage(
            text="phi4_multimodal",
            vision="phi4_multimodal_vision",
            others=(("audio_config", "phi4_multimodal_audio"),),
            projector=projectors.phi4,
        ),
        "glm5_next": VisionLanguage(text="glm5_next_text", vision="glm5_next_vision"),
        "idefics2": VisionLanguage(text="mistral", vision="idefics2_vision", bridge=queries.resampler),
        "instructblip": VisionLanguage(
            text="opt",
            vision="instructblip_vision_model",
            bridge=queries.query_transformer(words=True),
            known=_BLIP_KNOWN,
        ),
        "instructblipvideo": VisionLanguage(
            text="opt",
            vision="instructblipvideo_vision_model",
            bridge=queries.query_transformer(words=True),
            known=_BLIP_KNOWN,
        ),
        "kosmos-2": VisionLanguage(text="kosmos_2_text_model", vision="kosmos_2_vision_model", bridge=queries.attended),
        "kosmos-2.5": VisionLanguage(
            text="kosmos_2_5_text_model", vision="kosmos_2_5_vision_model", bridge=queries.attended
        ),
        "minicpm_ocr": VisionLanguage(
            text="qwen3_5_text", vision="minicpm_ocr_vision", projector=projectors.four_patches, known=_MINICPM
        ),
        "minicpmv4_6": VisionLanguage(
            text="qwen3_5_text", vision="minicpmv4_6_vision", projector=projectors.four_patches, known=_MINICPM
        ),
        "minicpmv4_7": VisionLanguage(
            text="qwen3_5_text", vision="minicpmv4_7_vision", projector=projectors.four_patches, known=_MINICPM
        ),
        "mistral_large4": VisionLanguage(text="mistral_large4_text", vision="pixtral", projector=projectors.mistral3),
        "muse_glimmer": VisionLanguage(
            text="muse_glimmer_text",
            vision="muse_glimmer_vision",
            projector=projectors.muse,
            known=("out_hidden_size",),
        ),
        "muse_spark": VisionLanguage(
            text="muse_spark_text",
            vision="muse_spark_vision",
            projector=projectors.muse,
            others=(("audio_config", "muse_spark_audio"),),
            known=("out_hidden_size",),
        ),
        "nemotron_h_omni": VisionLanguage(
            text="nemotron_h",
            vision="radio",
            projector=projectors.radio,
            known=("audio_config", "force_image_size", "vision_hidden_size", "video_pruning_rate"),
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
            others=(("audio_config", "qwen2_5_omni_audio_encoder"),),
            known=("position_id_per_seconds", "seconds_per_chunk"),
        ),
        "qwen3_omni_moe_thinker": VisionLanguage(
            text="qwen3_omni_moe_text",
            vision="qwen3_omni_moe_vision_encoder",
            others=(("audio_config", "qwen3_omni_moe_audio_encoder"),),
            known=("position_id_per_seconds",),
        ),
        "video_llama_3": VisionLanguage(text="qwen2", vision="video_llama_3_vision", projector=projectors.linear2),
        "deepseek_vl_hybrid": VisionLanguage(
            text="llama",
            vision="siglip_vision_model",
            others=(("high_res_vision_config", "sam_vision_model"),),
            projector=projectors.two_resolutions,
        ),
        "florence2": VisionLanguage(text="bart", vision="florence_vision", projector=projectors.florence),
        "lfm3_vl": VisionLanguage(
            text="lfm3", vision="lfm3_vl_vision", projector=projectors.lfm3, known=("projector_bias",)
        ),
        "unlimited_ocr": VisionLanguage(
            text="unlimited_ocr_text", vision="unlimited_ocr_vision", projector=projectors.side_by_side
        ),
        "deepseek_vl": VisionLanguage(text="llama", vision="siglip_vision_model", projector=projectors.linear2),
        "exaone4_5": VisionLanguage(text="exaone4", vision="exaone4_5_vision"),
        "lighton_ocr": VisionLanguage(text="qwen3", vision="pixtral", projector=projectors.mistral3),
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
        "cosmos3_omni": VisionLanguage(text="qwen3_vl_text", vision="qwen3_vl_vision"),
        "glm_ocr": VisionLanguage(text="glm_ocr_text", vision="glm_ocr_vision"),
        "paddleocr_vl": VisionLanguage(
            text="paddleocr_vl_text", vision="paddleocr_vl_vision", projector=projectors.kimi
        ),
        "glm46v": VisionLanguage(text="glm4v_text", vision="glm4v_vision"),
        "glmga": VisionLanguage(text="glm4v_text", vision="glm4v_vision"),
        "hyperclovax_vision_v2": VisionLanguage(
            text="hyperclovax", vision="qwen2_5_vl_vision", projector=projectors.one(True)
        ),
        "qianfan_ocr": VisionLanguage(
            text="qwen3", vision="qianfan_ocr_vision", projector=projectors.internvl, known=_PROJECTED
        ),
        "shieldgemma2": VisionLanguage(text="gemma3_text", vision="siglip_vision_model", projector=projectors.gemma3),
        "cohere2_vision": VisionLanguage(text="cohere2", vision="siglip_vision_model", projector=projectors.cohere),
        "ernie4_5_vl_moe": VisionLanguage(
            text="ernie4_5_vl_moe_text", vision="ernie4_5_vl_moe_vision", projector=projectors.ernie
        ),
        "ernie4_5_moe_vl": VisionLanguage(
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
        "smolvlm": VisionLanguage(text="llama", vision="smolvlm_vision", projector=projectors.idefics3),
        "step3p7": VisionLanguage(text="step3p5", vision="step3p5_vision", projector=projectors.step),
    }
)
"""Families by ``model_type``."""
