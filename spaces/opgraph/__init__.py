"""Models layer by layer, with the shapes of every operator: convolutional, recommendation and imported ones."""

from forerun.spaces.opgraph.catalogue import is_layered, layered_names, load_layered
from forerun.spaces.opgraph.model import LayeredModel
from forerun.spaces.opgraph.operator import NORMS, WEIGHTED, WINDOWED, Kind, Operator, Shape

__all__ = [
    "NORMS",
    "WEIGHTED",
    "WINDOWED",
    "Kind",
    "LayeredModel",
    "Operator",
    "Shape",
    "is_layered",
    "layered_names",
    "load_layered",
]
