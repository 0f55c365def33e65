"""The distinct layers of a model: entries of equal shape are costed once."""

from dataclasses import replace
from functools import lru_cache

from forerun.spaces.models.model import Layer, Model


@lru_cache(maxsize=64)
def layer_kinds(model: Model) -> tuple[Layer, ...]:
    """Return the distinct layers of ``model`` in order of first appearance; their counts and names are arbitrary.

    A model with alternating layers (gpt-oss: 36 entries) has as many kinds as shapes (2).
    """
    return tuple(dict.fromkeys(_shape(layer) for layer in model.layers))


@lru_cache(maxsize=64)
def kind_of_entry(model: Model) -> tuple[int, ...]:
    """Return the number of the kind of every entry of ``model.layers``."""
    kinds = {kind: number for number, kind in enumerate(layer_kinds(model))}
    return tuple(kinds[_shape(layer)] for layer in model.layers)


def _shape(layer: Layer) -> Layer:
    return replace(layer, name="", count=1)
