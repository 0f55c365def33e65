"""Modules of a layer that strategies can configure separately: its attention and its MLP.

A module is a ``Layer`` with all shapes and the name of the module (``Layer.module``), so that every cost rule of layers
applies to modules. The modules of a layer sum to it in parameters, operators and kept tensors.
"""

from dataclasses import replace

from forerun.spaces.models.model import Layer

MODULES = ("attention", "mlp")
"""Modules of a layer in execution order. Norms and residual additions belong to the module whose input they compute."""


def module_of(layer: Layer, module: str) -> Layer:
    """Return one module of a layer, with its norms.

    The mixer has the first of two norms (two of three with cross-attention), and the outer two of four; the single norm
    of a layer belongs to its attention.
    """
    if layer.mixer is None or layer.mlp is None:
        feeding_mlp = layer.norms if layer.mixer is None else 0
    else:
        feeding_mlp = layer.norms // (3 if layer.cross_attention is not None else 2)
    norms = feeding_mlp if module == "mlp" else layer.norms - feeding_mlp
    return replace(layer, module=module, norms=norms)
