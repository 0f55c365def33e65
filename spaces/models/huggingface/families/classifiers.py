"""Image classifiers of one stack of layers: ViT and its descendants."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.pyramid import labels
from forerun.spaces.models.huggingface.towers import Tower
from forerun.spaces.models.model import Model

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
