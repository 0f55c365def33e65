"""Shapes of ONNX graphs whose exporter left arithmetic on shapes in the graph.

Shape inference stops where a reshape takes its extents from other nodes. These nodes compute a few integers from known
shapes, so this module evaluates them and continues the inference until nothing new is found.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_PASSES = 400
"""Limit of rounds of inference, above the sequential reshapes of any known network."""

MOST_NUMBERS = 256
"""Limit of numbers of a constant: a shape has few."""

Array = NDArray[Any]
Attributes = Mapping[str, Any]


def inferred(model: Any) -> Any:
    """Return ``model`` with all shapes that can be inferred; arithmetic on shapes becomes constants."""
    from onnx import numpy_helper, shape_inference

    for _ in range(MOST_PASSES):
        model = shape_inference.infer_shapes(model, data_prop=True)
        values = _constants(model)
        if not values:
            break
        kept = [node for node in model.graph.node if not (len(node.output) == 1 and node.output[0] in values)]
        del model.graph.node[:]
        model.graph.node.extend(kept)
        model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    return model


def _constants(model: Any) -> dict[str, Array]:
    """Return the values of nodes that follow from known shapes and constants."""
    from onnx import numpy_helper

    values: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        if tensor.data_type in _WHOLE and _count(tensor.dims) <= MOST_NUMBERS:
            values[tensor.name] = numpy_helper.to_array(tensor)
    shapes = _shapes(model)
    constants: dict[str, Array] = {}
    for node in model.graph.node:
        if len(node.output) != 1 or node.domain not in ("", "ai.onnx"):
            continue
        value = _value(node, values, shapes)
        if value is not None and value.size <= MOST_NUMBERS:
            values[node.output[0]] = constants[node.output[0]] = value
    return constants


_WHOLE = frozenset({2, 3, 4, 5, 6, 7, 9, 12, 13})
"""TensorProto data types of integers and booleans."""

_INT64 = 7


def _count(extents: Any) -> int:
    count = 1
    for extent in extents:
        count *= max(extent, 0)
    return count


def _shapes(model: Any) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(extent.HasField("dim_value") for extent in kind.shape.dim):
            shapes[value.name] = tuple(extent.dim_value for extent in kind.shape.dim)
    return shapes


def _value(node: Any, values: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> Array | None:
    """Evaluate a node; None where its value is unknown or is not integer arithmetic."""
    if node.op_type == "Shape":
        shape = shapes.get(node.input[0])
        return None if shape is None else np.array(shape, dtype=np.int64)
    if node.op_type == "Constant":
        return _constant(node)
    rule = _RULES.get(node.op_type)
    names = [name for name in node.input if name]
    if rule is None or not names or any(name not in values for name in names):
        return None
    attributes = {one.name: list(one.ints) if one.type == 7 else one.i for one in node.attribute}
    try:
        result = np.asarray(rule([values[name] for name in names], attributes))
    except (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError):
        return None
    return result if result.dtype == bool or np.issubdtype(result.dtype, np.integer) else None


def _constant(node: Any) -> Array | None:
    from onnx import numpy_helper

    for one in node.attribute:
        if one.name == "value" and one.t.data_type in _WHOLE and _count(one.t.dims) <= MOST_NUMBERS:
            return np.asarray(numpy_helper.to_array(one.t))
        if one.name == "value_ints" and len(one.ints) <= MOST_NUMBERS:
            return np.array(list(one.ints), dtype=np.int64)
        if one.name == "value_int":
            return np.array(one.i, dtype=np.int64)
    return None


def _sliced(inputs: list[Array], attributes: Attributes) -> Array:
    data, starts, ends = inputs[:3]
    axes = inputs[3] if len(inputs) > 3 else np.arange(len(starts))
    steps = inputs[4] if len(inputs) > 4 else np.ones(len(starts), dtype=np.int64)
    parts: list[slice] = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        parts[int(axis)] = slice(int(start), int(end), int(step))
    return data[tuple(parts)]


def _axes(inputs: list[Array], attributes: Attributes) -> tuple[int, ...]:
    given = inputs[1].ravel().tolist() if len(inputs) > 1 else attributes.get("axes", [])
    return tuple(int(axis) for axis in given)


def _squeezed(inputs: list[Array], attributes: Attributes) -> Array:
    axes = _axes(inputs, attributes)
    return np.squeeze(inputs[0], axes) if axes else np.squeeze(inputs[0])


def _divided(inputs: list[Array], attributes: Attributes) -> Array:
    # Integers are divided towards zero.
    return np.trunc(inputs[0] / inputs[1]).astype(np.int64)


def _cast(inputs: list[Array], attributes: Attributes) -> Array:
    if attributes["to"] != _INT64:
        raise ValueError("only whole numbers are worked with")
    return inputs[0].astype(np.int64)


_RULES: Mapping[str, Callable[[list[Array], Attributes], Array]] = {
    "Identity": lambda inputs, attributes: inputs[0],
    "Cast": _cast,
    "Add": lambda inputs, attributes: inputs[0] + inputs[1],
    "Sub": lambda inputs, attributes: inputs[0] - inputs[1],
    "Mul": lambda inputs, attributes: inputs[0] * inputs[1],
    "Div": _divided,
    "Mod": lambda inputs, attributes: np.mod(inputs[0], inputs[1]),
    "Neg": lambda inputs, attributes: -inputs[0],
    "Gather": lambda inputs, attributes: np.take(inputs[0], inputs[1], axis=attributes.get("axis", 0)),
    "Concat": lambda inputs, attributes: np.concatenate(inputs, axis=attributes["axis"]),
    "Slice": _sliced,
    "Unsqueeze": lambda inputs, attributes: np.expand_dims(inputs[0], _axes(inputs, attributes)),
    "Squeeze": _squeezed,
    "Reshape": lambda inputs, attributes: inputs[0].reshape(inputs[1].astype(int).tolist()),
    "ReduceProd": lambda inputs, attributes: np.asarray(np.prod(inputs[0])).reshape(
        [1] * attributes.get("keepdims", 1)
    ),
    "Equal": lambda inputs, attributes: inputs[0] == inputs[1],
    "Where": lambda inputs, attributes: np.where(inputs[0], inputs[1], inputs[2]),
    "Max": lambda inputs, attributes: np.maximum.reduce(inputs),
    "Min": lambda inputs, attributes: np.minimum.reduce(inputs),
}
"""Operators on integers from which exporters build shapes."""
