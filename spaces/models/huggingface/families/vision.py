"""Image encoders beside a language model, by their ``model_type``."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.towers import Tower


def attention_pool(fields: Fields, width: int) -> int:
    """SigLIP's head: one learned query, an attention over all patches and a feed-forward."""
    if fields.raw("vision_use_head") is False:
        return 0
    inner = fields.size("intermediate_size")
    return width + 4 * width * width + 4 * width + 2 * width + 2 * width * inner + inner + width


def qwen_merger(fields: Fields, width: int, *, norm: int = 2) -> int:
    """Four neighbouring patches joined and brought to the language model's width by two products with biases."""
    joined = width * fields.size("spatial_merge_size", 2) ** 2
    out = fields.size("out_hidden_size")
    return norm * width + joined * joined + joined + joined * out + out


def _deepstack(fields: Fields, width: int) -> int:
    """Qwen3-VL: one more merger, normalised after joining, for each layer whose output enters the language model."""
    joined = width * fields.size("spatial_merge_size", 2) ** 2
    levels = len(fields.listed("deepstack_visual_indexes", int) or ())
    one = qwen_merger(fields, width)
    return one + levels * (one - 2 * width + 2 * joined)


def _qwen2_merger(fields: Fields, width: int) -> int:
    joined, out = width * fields.size("spatial_merge_size", 2) ** 2, fields.size("hidden_size")
    return 2 * width + joined * joined + joined + joined * out + out


def _qwen25_merger(fields: Fields, width: int) -> int:
    return qwen_merger(fields, width, norm=1)


def _glm_merger(fields: Fields, width: int) -> int:
    """GLM-4.5V: a strided convolution joins patches, a gated feed-forward follows; norms around the stack."""
    out, inner = fields.size("out_hidden_size"), fields.size("intermediate_size")
    joined = width * fields.size("spatial_merge_size", 2) ** 2
    return joined * out + out + out * out + 2 * out + 3 * out * inner + width


def _ocr_merger(fields: Fields, width: int) -> int:
    """GLM-OCR: as GLM-4.5V's, three times as wide inside, and without a norm before the stack."""
    out = fields.size("out_hidden_size")
    joined = width * fields.size("spatial_merge_size", 2) ** 2
    return joined * out + out + out * out + 2 * out + 3 * out * out * fields.size("in_channels", 3)


def _llama4_adapter(fields: Fields, width: int) -> int:
    """Pixel shuffle and two products without biases."""
    first, last = fields.size("projector_input_dim"), fields.size("projector_output_dim")
    return fields.size("intermediate_size") * first + first * last


def _downsamplers(fields: Fields, width: int) -> int:
    """Step 3.7: two strided convolutions that double the width each."""
    return 9 * width * 2 * width + 2 * width + 9 * 2 * width * 4 * width + 4 * width


def _segment_anything(fields: Fields, width: int) -> int:
    """SAM's encoder (arXiv 2304.02643): relative positions of windows or of the whole image in every layer, and two
    convolutions behind it; then the two that GOT-OCR joins positions by."""
    heads, out = fields.size("num_attention_heads"), fields.size("output_channels", 256)
    whole = len(fields.listed("global_attn_indexes", int) or ())
    side, window = fields.size("image_size", 1024) // fields.size("patch_size", 16), fields.size("window_size", 14)
    rows = whole * (2 * side - 1) + (fields.size("num_hidden_layers") - whole) * (2 * window - 1)
    neck = width * out + 9 * out * out + 4 * out
    return 2 * rows * (width // heads) + neck + 9 * out * 2 * out + 9 * 2 * out * 4 * out


def _tiles(fields: Fields, width: int) -> int:
    """Llama 3.2: tables of positions for every way to cut an image, before, in and after the stack, and gates."""
    tiles, ways = fields.size("max_num_tiles", 4), len(fields.listed("supported_aspect_ratios", list) or [None] * 8) + 1
    side = fields.size("image_size", 448) // fields.size("patch_size", 14)
    gates = 3 + 2 * fields.size("num_global_layers", 8)
    return ways * tiles * width * (side * side + 1) + 2 * ways * tiles * width + gates


def _visual_words(fields: Fields, width: int) -> int:
    """Ovis 2: scores of every visual word, without those that mark images."""
    words = fields.size("vocab_size") - fields.size("num_visual_indicator_tokens", 5)
    return words * width * fields.size("hidden_stride", 1) ** 2 + 2 * words


def _docling(fields: Fields, width: int) -> int:
    """Granite Docling: coarse and fine patches joined, each with mergers of outputs from within the stack."""
    out, levels = fields.size("out_hidden_size"), len(fields.listed("deepstack_visual_indexes", int) or ())
    fine = fields.flag("use_fine_route", True)
    made = 2 * width + 4 * out + out * out
    for joined in (fields.size("scale_factor", 4) ** 2 * width, *([4 * width] if fine else [])):
        made += joined * out + levels * (2 * joined + joined * out + out + out * out + out)
    return made


def _kimi_positions(fields: Fields, width: int) -> int:
    sides = [
        fields.size(f"init_{side}" if fields.given(f"init_{side}") else side)
        for side in ("pos_emb_height", "pos_emb_width")
    ]
    return sides[0] * sides[1] * width


_CLIP = Tower(class_tokens=1, pre_norms=1, patch_bias=False, known=("projection_dim", "vocab_size"))
_SIGLIP = Tower(outside=attention_pool, known=("projection_dim", "vocab_size", "vision_use_head"))
_QWEN = Tower(
    positions="num_position_embeddings",
    post_norms=0,
    outside=_deepstack,
    known=("out_hidden_size", "deepstack_visual_indexes"),
)
_QWEN35 = replace(_QWEN, outside=qwen_merger)
_QWEN25 = Tower(
    positions="none",
    patch_bias=False,
    norm_bias=False,
    gated=True,
    post_norms=0,
    outside=_qwen25_merger,
    known=("out_hidden_size", "fullatt_block_indexes", "window_size", "in_chans", "spatial_patch_size"),
)
_SAM = Tower(
    query_bias="qkv_bias",
    inner="mlp_dim",
    post_norms=0,
    outside=_segment_anything,
    known=("use_abs_pos", "use_rel_pos", "num_pos_feats", "vocab_size"),
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
    outside=_glm_merger,
    known=("intermediate_size",),
)

TOWERS: Mapping[str, Tower] = MappingProxyType(
    {
        "clip_vision_model": _CLIP,
        "ernie4_5_vl_moe_vision": Tower(
            positions="none", patch_bias=False, known=("temporal_merge_size", "spatial_merge_size")
        ),
        "cosmos3_edge_vision": Tower(positions="num_patches", known=("spatial_merge_size",)),
        "exaone4_5_vision": _QWEN25,
        "got_ocr2_vision": _SAM,
        "granite_docling_vision": Tower(outside=_docling),
        "metaclip_2_vision_model": _CLIP,
        "glm4v_moe_vision": _GLM,
        "glm4v_vision": _GLM,
        "glm_ocr_vision": Tower(
            gated=True,
            query_bias="attention_bias",
            output_bias="attention_bias",
            norm_bias=False,
            positions="none",
            query_key_norm=True,
            outside=_ocr_merger,
        ),
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
            outside=_kimi_positions,
        ),
        "llama4_vision_model": Tower(
            class_tokens=1,
            pre_norms=1,
            patch_bias=False,
            outside=_llama4_adapter,
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
            outside=_tiles,
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
            outside=_visual_words,
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
            outside=_qwen2_merger,
            known=("hidden_size", "in_chans", "spatial_patch_size"),
        ),
        "qwen3_5_moe_vision": _QWEN35,
        "qwen3_5_vision": _QWEN35,
        "qwen3_omni_moe_vision_encoder": _QWEN,
        "qwen3_vl_moe_vision": _QWEN,
        "qwen3_vl_vision": _QWEN,
        "siglip2_vision_model": replace(_SIGLIP, positions="num_patches"),
        "paddleocr_vl_vision": Tower(known=("spatial_merge_size",)),
        "siglip_vision_model": _SIGLIP,
        "smolvlm_vision": Tower(),
        "video_llama_3_vision": Tower(positions="none"),
        "step3p5_vision": Tower(
            positions="max_position_embeddings",
            patch_bias=False,
            scales=2,
            pre_norms=1,
            post_norms=0,
            outside=_downsamplers,
            known=("layer_scale_init_value",),
        ),
    }
)
"""Image encoders beside a language model."""
