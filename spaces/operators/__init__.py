"""Operators as iteration spaces: cuttable axes, and the effect of cuts on every tensor."""

from forerun.spaces.operators.axes import (
    Axis,
    AxisKind,
    Cut,
    CutOperator,
    Dimension,
    Operand,
    check_cuts,
    follow,
    spatial_axes,
)
from forerun.spaces.operators.graph import OperatorGraph
from forerun.spaces.operators.layers import attention_core, linear, pointwise
from forerun.spaces.operators.transformer import ATTENTION_OPERATORS, LayerDegrees, layer_cuts, transformer_layer

__all__ = [
    "ATTENTION_OPERATORS",
    "Axis",
    "AxisKind",
    "Cut",
    "CutOperator",
    "Dimension",
    "LayerDegrees",
    "Operand",
    "OperatorGraph",
    "attention_core",
    "check_cuts",
    "follow",
    "layer_cuts",
    "linear",
    "pointwise",
    "spatial_axes",
    "transformer_layer",
]
