"""All kinds of operators: what builds each. A new one is a file, a line here and an entry in the tests."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from forerun.spaces.operators.attention import attention_core
from forerun.spaces.operators.axes import Operator
from forerun.spaces.operators.convolution import convolution, pooling
from forerun.spaces.operators.embedding import embedding
from forerun.spaces.operators.linear import linear, product
from forerun.spaces.operators.pointwise import pointwise

OPERATORS: Mapping[str, Callable[..., Operator]] = MappingProxyType(
    {
        "attention": attention_core,
        "convolution": convolution,
        "embedding": embedding,
        "linear": linear,
        "pointwise": pointwise,
        "pooling": pooling,
        "product": product,
    }
)
"""Builders by ``Operator.kind``."""
