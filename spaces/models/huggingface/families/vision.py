"""Image encoders beside a language model, by their ``model_type``."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.families.patches import (
    attention_pool,
    deepstack,
    docling,
    downsamplers,
    formula,
    glm_merger,
    kimi_positions,
    llama4_adapter,
    next_merger,
    ocr_merger,
    qwen2_merger,
    qwen25_merger,
    qwen_merger,
    radio,
    row_and_column,
    segment_anything,
    tiles,
    visual_words,
    window_merger,
)
from forerun.spaces.models.huggingface.towers import Tower

_CLIP = Tower(class_tokens=1, pre_norms=1, patch_bias=False, known=("projection_dim", "vocab_size"))
_BLIP = Tower(class_tokens=1, query_bias="qkv_bias", known=("projection_dim", "qkv_bias"))
_SIGLIP = Tower(outside=attention_pool, known=("projection_dim", "vocab_size", "vision_use_head"))
_QWEN = Tower(
    positions="num_position_embeddings",
    post_norms=0,
    outside=deepstack,
    known=("out_hidden_size", "deepstack_visual_indexes"),
)
_QWEN35 = replace(_QWEN, outside=qwen_merger)
_QWEN25 = Tower(
    positions="none",
    patch_bias=False,
    norm_bias=False,
    gated=True,
    post_norms=0,
    outside=qwen25_merger,
    known=("out_hidden_size", "fullatt_block_indexes", "window_size", "in_chans", "spatial_patch_size"),
)
_SAM = Tower(
    query_bias="qkv_bias",
    inner="mlp_dim",
    post_norms=0,
    outside=segment_anything,
    known=("use_abs_pos", "use_rel_pos", "num_pos_feats", "vocab_size"),
)
_FLATTENED = Tower(
    positions="none",
    gated=True,
    query_bias=False,
    output_bias=False,
    mlp_bias=False,
    norm_bias=False,
    outside=row_and_column,
    known=("relative_attention_max_distance", "relative_attention_num_buckets"),
)
_MINICPM = Tower(outside=window_merger, known=("insert_layer_id", "window_kernel_size"))
_MUSE = Tower(
    positions="max_position_embeddings",
    patch_bias=False,
    pre_norms=1,
    known=("layer_types", "merge_size", "patch_temporal", "pos_emb_height", "pos_emb_width"),
)
_INTERN = Tower(
    class_tokens=1,
    query_bias="attention_bias",
    scales=2,
    post_norms=0,
    query_key_norm="use_qk_norm",
    known=(
        "layer_scale_init_value",
        "norm_type",
        "use_absolute_position_embeddings",
        "use_mean_pooling",
        "use_mask_token",
        "drop_path_rate",
        "attention_bias",
    ),
)
_GLM = Tower(
    gated=True,
    query_bias="attention_bias",
    output_bias=False,
    mlp_bias=False,
    norm_bias=False,
    pre_norms=1,
    inner="out_hidden_size",
    outside=glm_merger,
    known=("intermediate_size",),
)
_ERNIE = Tower(
    positions="none",
    patch_bias=False,
    known=(
        "attn_sep", "embed_dim", "in_chans", "spatial_merge_size", "spatial_patch_size", "temporal_merge_size",
        "token_compress_ratio", "vit_first_fwd_bsz",
    ),
)  # fmt: skip
_GLM_OCR = Tower(
    gated=True,
    query_bias="attention_bias",
    output_bias="attention_bias",
    norm_bias=False,
    positions="none",
    query_key_norm=True,
    outside=ocr_merger,
)

TOWERS: Mapping[str, Tower] = MappingProxyType(
    {
        **{f"{kind}_vision_model": _CLIP for kind in ("altclip", "chinese_clip", "clip", "clipseg")},
        "blip_vision_model": replace(_BLIP, query_bias=True),
        "blip_2_vision_model": _BLIP,
        "instructblip_vision_model": _BLIP,
        "instructblipvideo_vision_model": _BLIP,
        "git_vision_model": _CLIP,
        "kosmos_2_vision_model": _CLIP,
        "idefics_vision": replace(_CLIP, width="embed_dim"),
        "idefics2_vision": Tower(),
        "kosmos_2_5_vision_model": _FLATTENED,
        "pix2struct_vision_model": _FLATTENED,
        "minicpm_ocr_vision": _MINICPM,
        "minicpmv4_6_vision": _MINICPM,
        "minicpmv4_7_vision": _MINICPM,
        "muse_glimmer_vision": _MUSE,
        "muse_spark_vision": _MUSE,
        "pp_formulanet_vision": replace(
            _SAM, outside=formula, known=(*_SAM.known, "post_conv_in_channels", "post_conv_mid_channels")
        ),
        "radio": Tower(
            positions="none",
            scales=2,
            post_norms=0,
            query_bias="qkv_bias",
            patch_bias=False,
            outside=radio,
            known=(
                "drop_path_rate",
                "layerscale_value",
                "norm_mean",
                "norm_std",
                "patch_dim",
                "summary_idxs",
                "use_swiglu_ffn",
            ),
        ),
        "DFNRope_vision_transformer": _ERNIE,
        "ernie4_5_vl_moe_vision": _ERNIE,
        "cosmos3_edge_vision": Tower(positions="num_patches", known=("spatial_merge_size",)),
        "exaone4_5_vision": _QWEN25,
        "got_ocr2_vision": _SAM,
        "granite_docling_vision": Tower(outside=docling),
        "metaclip_2_vision_model": _CLIP,
        "glm4v_moe_vision": _GLM,
        "glm4v_vision": _GLM,
        "glm5_next_vision": replace(_GLM_OCR, outside=next_merger),
        "glm_ocr_vision": _GLM_OCR,
        "idefics3_vision": Tower(),
        "internvl_vision": _INTERN,
        "kimi_k25_vision": Tower(
            positions="none",
            known=(
                "merge_kernel_size",
                "pos_emb_height",
                "pos_emb_time",
                "pos_emb_width",
                "init_pos_emb_height",
                "init_pos_emb_width",
                "init_pos_emb_time",
                "mm_hidden_size",
                "text_hidden_size",
                "pos_emb_interpolation_mode",
            ),
            outside=kimi_positions,
        ),
        "llama4_vision_model": Tower(
            class_tokens=1,
            pre_norms=1,
            patch_bias=False,
            outside=llama4_adapter,
            known=(
                "pixel_shuffle_ratio",
                "projector_input_dim",
                "projector_output_dim",
                "vision_output_dim",
                "multi_modal_projector_bias",
            ),
        ),
        "minimax_m3_vl_vision": Tower(
            positions="none", patch_bias=False, pre_norms=1, post_norms=0, known=("spatial_merge_size",)
        ),
        "mllama_vision_model": Tower(
            query_bias=False,
            output_bias=False,
            class_tokens=1,
            patch_bias=False,
            pre_norms=1,
            more="num_global_layers",
            tiles="max_num_tiles",
            outside=tiles,
            known=("intermediate_layers_indices", "vision_output_dim", "max_aspect_ratio_id"),
        ),
        "molmo2_vision": Tower(
            positions="num_position_embeddings", post_norms=0, known=("attention_bias",), query_bias=True
        ),
        "ovis2_vision": Tower(
            query_bias="qkv_bias",
            output_bias="qkv_bias",
            mlp_bias="mlp_bias",
            gated=True,
            norm_bias=False,
            pre_norms=1,
            outside=visual_words,
            known=("tokenize_function", "drop_cls_token", "backbone_args"),
        ),
        "pixtral": Tower(
            positions="none",
            patch_bias=False,
            norm_bias=False,
            gated=True,
            query_bias=False,
            output_bias=False,
            mlp_bias=False,
            known=("vocab_size",),
        ),
        "qianfan_ocr_vision": replace(_INTERN, query_bias=True),
        "pp_chart2table_vision": _SAM,
        "qwen2_5_omni_vision_encoder": _QWEN25,
        "qwen2_5_vl_vision": _QWEN25,
        "qwen2_vl_vision": Tower(
            width="embed_dim",
            positions="none",
            patch_bias=False,
            post_norms=0,
            outside=qwen2_merger,
            known=("hidden_size", "in_chans", "spatial_patch_size"),
        ),
        "qwen3_5_moe_vision": _QWEN35,
        "qwen3_5_vision": _QWEN35,
        "qwen3_omni_moe_vision_encoder": _QWEN,
        "qwen3_vl_moe_vision": _QWEN,
        "qwen3_vl_vision": _QWEN,
        "siglip2_vision_model": replace(_SIGLIP, positions="num_patches"),
        "paddleocr_vl_vision": Tower(known=("spatial_merge_size",)),
        "phi4_multimodal_vision": replace(_SIGLIP, known=(*_SIGLIP.known, "crop_size", "feature_layer")),
        "siglip_vision_model": _SIGLIP,
        "smolvlm_vision": Tower(),
        "video_llama_3_vision": Tower(positions="none"),
        "step3p5_vision": Tower(
            positions="max_position_embeddings",
            patch_bias=False,
            scales=2,
            pre_norms=1,
            post_norms=0,
            outside=downsamplers,
            known=("layer_scale_init_value",),
        ),
    }
)
"""Image encoders beside a language model."""
