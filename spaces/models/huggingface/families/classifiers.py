"""Image classifiers: an encoder of one stack or of stages, and a linear classifier."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from forerun.spaces.models.huggingface.families.stages_of_attention import ATTENTION
from forerun.spaces.models.huggingface.families.stages_of_convolutions import CONVOLUTIONS
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.pyramid import Build, PyramidClassifier, labels
from forerun.spaces.models.huggingface.tables import table
from forerun.spaces.models.huggingface.towers import Tower
from forerun.spaces.models.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """An image encoder with a linear classifier. ``head``: columns of its input over the encoder's width."""

    tower: Tower
    head: int = 1

    def read(self, fields: Fields, name: str, part: Fields | None = None) -> Model:
        """Make the model of a configuration, called ``name``; ``part``: nested fields of its encoder, if any."""
        image, classes = self.tower.read(part or fields, alone=True), labels(fields)
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


@cache
def classifiers() -> Mapping[str, Classifier | PyramidClassifier]:
    """Return the image classifiers by model type; names with an underscore are not model types."""
    builds = {**CONVOLUTIONS, **ATTENTION}
    return table(_classifier, "image_classifiers", conversions={"build": builds.__getitem__, "harmless": tuple})


def _classifier(build: Build | None = None, head: int = 1, **keys: Any) -> Classifier | PyramidClassifier:
    """Make the classifier of a table's entry, of stages where a function builds them, otherwise of one stack."""
    return PyramidClassifier(build=build, **keys) if build else Classifier(tower=Tower(**keys), head=head)
