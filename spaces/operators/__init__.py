"""Operators as iteration spaces: axes that can be cut, and what cutting them does to every tensor."""

from forerun.spaces.operators.attention import attention_core
from forerun.spaces.operators.axes import Axis, AxisKind, Cut, Dimension, Operand, Operator, check_cuts, follow
from forerun.spaces.operators.catalogue import OPERATORS
from forerun.spaces.operators.convolution import convolution, pooling
from forerun.spaces.operators.embedding import embedding
from forerun.spaces.operators.graph import OperatorGraph
from forerun.spaces.operators.linear import linear, product
from forerun.spaces.operators.pointwise import pointwise
from forerun.spaces.operators.transformer import Degrees, layer_cuts, transformer_layer

__all__ = [
    "OPERATORS",
    "Axis",
    "AxisKind",
    "Cut",
    "Degrees",
    "Dimension",
    "Operand",
    "Operator",
    "OperatorGraph",
    "attention_core",
    "check_cuts",
    "convolution",
    "embedding",
    "follow",
    "layer_cuts",
    "linear",
    "pointwise",
    "pooling",
    "product",
    "transformer_layer",
]
