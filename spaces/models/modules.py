"""Parts of a layer that strategies may configure separately: its attention and its MLP.

A part is a ``Layer`` with all shapes that represents one of its modules (``Layer.module``), so that every cost rule of
layers applies to parts. The parts of a layer add up to it: parameters, operators and kept tensors.
"""

from dataclasses import replace

from forerun.spaces.models.model import Layer

MODULES = ("attention", "mlp")
"""Modules of a layer in execution order. Norms and residual additions belong to the module whose input they make."""


def module_of(layer: Layer, module: str) -> Layer:
    """Return one module of a layer, with its norms.

    They are the first of two (two of three with cross-attention), both outer ones of four; the norm of a layer with a
    single one belongs to its attention.
    """
    if layer.mixer is None or layer.mlp is None:
        feeding_mlp = layer.norms if layer.mixer is None else 0
    else:
        feeding_mlp = layer.norms // (3 if layer.cross_attention is not None else 2)
    norms = feeding_mlp if module == "mlp" else layer.norms - feeding_mlp
    return replace(layer, module=module, norms=norms)
