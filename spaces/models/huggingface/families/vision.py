"""Image encoders by their ``model_type``, and classifiers made of one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.pyramid import labels
from forerun.spaces.models.huggingface.towers import Tower
from forerun.spaces.models.model import Model


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
        "exaone4_5_vision": _QWEN25,
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
        "qwen3_vl_moe_vision": _QWEN,
        "qwen3_vl_vision": _QWEN,
        "siglip2_vision_model": replace(_SIGLIP, positions="num_patches"),
        "paddleocr_vl_vision": Tower(known=("spatial_merge_size",)),
        "siglip_vision_model": _SIGLIP,
        "smolvlm_vision": Tower(),
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

_KNOWN = (
    "encoder_stride",
    "pooler_act",
    "pooler_output_size",
    "out_features",
    "out_indices",
    "reshape_hidden_states",
    "stage_names",
    "drop_path_rate",
    "layer_scale_init_value",
    "layerscale_value",
    "apply_layernorm",
    "use_mask_token",
    "use_mean_pooling",
    "auxiliary_channels",
    "auxiliary_loss_weight",
    "auxiliary_num_convs",
    "pool_scales",
    "use_auxiliary_head",
    "semantic_loss_ignore_index",
    "vocab_size",
    "qkv_bias",
    "auxiliary_concat_input",
    "use_absolute_position_embeddings",
    "use_relative_position_bias",
    "use_shared_relative_position_bias",
    "use_swiglu_ffn",
    "interpolate_antialias",
    "interpolate_offset",
)
_VIT = Tower(class_tokens=1, query_bias="qkv_bias", known=_KNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """An image encoder with a linear classifier. ``head``: columns of its input over the encoder's width."""

    tower: Tower
    head: int = 1

    def read(self, fields: Fields, name: str, part: Fields | None = None) -> Model:
        """The model that the configuration describes, called ``name``; ``part``: the nested configuration of its
        encoder, where that is not the outer level."""
        image, classes = self.tower.read(part or fields, beside=False), labels(fields)
        return Model(
            name=name,
            source=fields.source,
            hidden=image.width,
            vocab=0,
            layers=image.layers,
            patch_inputs=image.patch_inputs,
            classes=classes,
            embedding_extra=image.outside - (image.patch_inputs + 1) * image.width,
            extra_parameters=(self.head - 1) * image.width * classes,
            final_norm=False,
            max_seq_len=image.patches + self.tower.class_tokens,
        )


TABLE: Mapping[str, Classifier] = MappingProxyType(
    {
        "beit": Classifier(tower=replace(_VIT, query_bias=True, scales=2, positions="none")),
        "data2vec-vision": Classifier(tower=replace(_VIT, query_bias=True, scales=2, positions="none")),
        "deit": Classifier(tower=replace(_VIT, class_tokens=2)),
        "dinov2": Classifier(tower=replace(_VIT, scales=2), head=2),
        "dinov2_with_registers": Classifier(
            tower=replace(_VIT, scales=2, position_rows=4, known=(*_KNOWN, "num_register_tokens")), head=2
        ),
        "ijepa": Classifier(tower=replace(_VIT, class_tokens=0)),
        "vit": Classifier(tower=_VIT),
        "vit_msn": Classifier(tower=_VIT),
    }
)
"""Classifiers by ``model_type``."""
