"""Dual encoders: text and images, projected to one width and compared (CLIP, SigLIP)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from forerun.spaces.models.huggingface.families.classifiers import Classifier
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.formulas import linear
from forerun.spaces.models.huggingface.tables import token_encoders, towers
from forerun.spaces.models.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class DualEncoder:
    """A text and an image encoder whose outputs are projected to one width and compared."""

    kind: str
    """Model type, the prefix of both parts' types."""
    text: str = "_clip_text"
    """Table entry of the text encoder."""
    projections: bool = True
    """Whether both outputs are projected; False: only the text's, to the width of images (SigLIP)."""
    harmless: tuple[str, ...] = ()
    """Fields without an effect on the model."""

    def read(self, fields: Fields, name: str) -> Model:
        """Make the model of a configuration, called ``name``: the image encoder's layers first.

        If the configuration names a classifier, the model is the image encoder before it.
        """
        image_type = f"{self.kind}_vision_model"
        if any("ImageClassification" in one for one in fields.listed_or_none("architectures", str) or ()):
            fields.read.update(fields.values)  # all other fields describe omitted parts
            part = fields.part("vision_config", image_type)
            return Classifier(tower=towers()[image_type]).read(fields, name, part)
        text = token_encoders()[self.text].read(fields.part("text_config", f"{self.kind}_text_model"), name)
        fields.accept(*self.harmless)
        image = towers()[image_type].read(fields.part("vision_config", image_type))
        width = fields.size("projection_dim", 512) if self.projections else 0
        between = width * (text.hidden + image.width) if self.projections else linear(text.hidden, text.hidden)
        return replace(text, layers=image.layers + text.layers, embedding_extra=image.outside + between)


DUAL_ENCODERS: Mapping[str, DualEncoder] = MappingProxyType(
    {
        family.kind: family
        for family in (
            DualEncoder(kind="altclip", text="_altclip_text"),
            DualEncoder(kind="chinese_clip", text="_chinese_clip_text"),
            DualEncoder(kind="clip"),
            DualEncoder(
                kind="clipseg",
                harmless=(
                    "conditional_layer",
                    "decoder_intermediate_size",
                    "decoder_num_attention_heads",
                    "extract_layers",
                    "reduce_dim",
                ),
            ),
            DualEncoder(kind="metaclip_2"),
            DualEncoder(kind="siglip", text="_siglip_text", projections=False),
            DualEncoder(kind="siglip2", text="_siglip_text", projections=False),
        )
    }
)
"""Families by ``model_type``."""
