"""Reader of ONNX files. Only the graph is read: external weights are not opened, and nothing is executed."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.graphs import rules
from forerun.spaces.opgraph.graphs.convert import model_of_graph
from forerun.spaces.opgraph.graphs.onnx_shapes import inferred
from forerun.spaces.opgraph.graphs.record import MAX_NODES, GraphCall, RecordedGraph
from forerun.spaces.opgraph.graphs.rules import Rule
from forerun.spaces.opgraph.model import GraphModel
from forerun.spaces.reading import read_bytes

MAX_BYTES = 2 << 30
"""A Protobuf file has at most 2 GiB."""

FLOATS = frozenset({1, 10, 11, 16})
"""TensorProto data types of trained values: float, float16, double, bfloat16."""

_ACTIVATIONS = (
    "Relu LeakyRelu PRelu Sigmoid Tanh Elu Selu Celu Gelu Mish HardSigmoid HardSwish Softplus Softsign ThresholdedRelu "
    "Clip Erf Exp Log Sqrt Reciprocal Pow Neg Abs Sin Cos Floor Ceil Round Sign Not Where Equal Greater Less Swish"
)

RULES: dict[str, Rule] = {
    "Conv": rules.convolution,
    "ConvTranspose": rules.transposed_convolution,
    "Gemm": rules.linear,
    "MatMul": rules.linear,
    "BatchNormalization": rules.batch_norm,
    "InstanceNormalization": rules.batch_norm,
    "GroupNormalization": rules.batch_norm,
    "LayerNormalization": rules.layer_norm,
    "RMSNormalization": rules.layer_norm,
    "LRN": rules.activation,
    "MaxPool": rules.pool,
    "AveragePool": rules.pool,
    "LpPool": rules.pool,
    "Gather": rules.embedding,
    "Softmax": rules.softmax,
    "LogSoftmax": rules.softmax,
    "Dropout": rules.dropout,
    "Concat": rules.concat,
    "Resize": rules.upsample,
    "Upsample": rules.upsample,
    "Attention": rules.attention,
    "SoftmaxCrossEntropyLoss": rules.loss,
    **{name: rules.activation for name in _ACTIVATIONS.split()},
    **{name: rules.binary for name in ("Add", "Sub", "Sum", "Mean", "Max", "Min")},
    **{name: rules.scaling for name in ("Mul", "Div")},
    **{name: rules.view for name in ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")},
    **{
        name: rules.copy
        for name in ("Transpose", "Cast", "Pad", "Slice", "Split", "Expand", "Tile", "DepthToSpace", "SpaceToDepth")
    },
    **{
        name: rules.pool
        for name in (
            "GlobalAveragePool",
            "GlobalMaxPool",
            "ReduceMean",
            "ReduceSum",
            "ReduceMax",
            "ReduceMin",
            "ReduceL2",
            "ArgMax",
        )
    },
}
"""ONNX operators of the default domain with a cost rule."""

_ALIASES = frozenset({"Identity", "Transpose", "Cast", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose output is a weight when their input is one."""

SKIPPED = frozenset({"Constant", "ConstantOfShape", "Shape", "Size", "Range"})


def read_onnx(path: Path, *, allow_generic: bool = False, shapes: Sequence[str] = ()) -> GraphModel:
    """Return the model of an ONNX file; ``shapes``: its open input extents, like ``x=3x640x640``.

    Raises:
        RequestError: the package ``onnx`` is missing, the file is truncated or not ONNX, a shape is dynamic or unknown,
            or an operator has no rule and ``allow_generic`` is not set.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise RequestError("reading ONNX files needs the package onnx; pip install 'forerun[graphs]'") from None
    try:
        data = read_bytes(path, most=MAX_BYTES, kind="a graph with weights in separate files")
        model = onnx.load_model_from_string(data)
    except (DecodeError, ValueError, RuntimeError, UnicodeDecodeError) as error:
        raise RequestError(f"{path} is not an ONNX file, or it is cut short: {_first_line(error)}") from None
    if not model.graph.node:
        raise RequestError(f"{path} is not an ONNX file, or it is cut short: it has no nodes")
    if len(model.graph.node) > MAX_NODES:
        raise RequestError(f"{path}: a graph has at most {MAX_NODES} nodes, but got {len(model.graph.node)}")
    notes = _fix_extents(model, path.name, _extents(shapes))
    _lift_constants(model)
    _drop_weights(model)
    try:
        model = inferred(model)
    except Exception as error:  # the checker raises its own error classes for laws of any operator
        raise RequestError(f"{path}: the graph breaks a law of ONNX: {_first_line(error)}") from None
    return model_of_graph(_graph(model, path, notes), RULES, allow_generic=allow_generic, skipped=SKIPPED)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


def _extents(shapes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the extents without the batch, by name of an input.

    >>> _extents(["x=3x640x640"])
    {'x': (3, 640, 640)}
    """
    extents = {}
    for text in shapes:
        name, _, sizes = text.rpartition("=")
        if not name or not re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8})*", sizes):
            raise RequestError(
                f"--shape is written like x=3x640x640, an input and its extents behind the batch: {text}"
            )
        extents[name] = tuple(map(int, sizes.split("x")))
    return extents


def _fix_extents(model: Any, source: str, given: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """Set open extents of inputs: the batch to one sample, the others to ``given`` ones by name."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = {
        value.name: value.type.tensor_type.shape.dim for value in model.graph.input if value.name not in constants
    }
    if strange := [name for name in given if name not in inputs]:
        raise RequestError(f"{source} has no input {strange[0]!r} for --shape; it has {', '.join(inputs)}")
    opened, batches = False, []
    for name, axes in inputs.items():
        extents = given.get(name, ())
        if name in given and len(extents) != len(axes) - 1:
            raise RequestError(
                f"{source}: input {name!r} has {len(axes) - 1} axes behind the batch, not {len(extents)}"
            )
        for axis, extent in enumerate(axes):
            if extent.HasField("dim_value") and extent.dim_value > 0:
                if axis and extents and extents[axis - 1] != extent.dim_value:
                    raise RequestError(f"{source}: axis {axis} of input {name!r} has {extent.dim_value} elements")
                continue
            if axis and not extents:
                shape = "x".join(str(one.dim_value or one.dim_param or "N") for one in axes[1:])
                raise RequestError(
                    f"{source}: input {name!r} has a dynamic extent at axis {axis}; give --shape {name}={shape} with "
                    "numbers, or export with fixed shapes"
                )
            extent.Clear()
            extent.dim_value = extents[axis - 1] if axis else 1
            opened = True
            batches += [] if axis else [name]
    if opened:
        # Shapes inferred with open extents are no longer valid.
        del model.graph.value_info[:]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
    return (f"the batch axis of {', '.join(batches)} is open; one sample is taken",) if batches else ()


def _lift_constants(model: Any) -> None:
    """Make parameters of the tensors in ``Constant`` nodes, in which Paddle's exporter writes weights."""
    constants = []
    for node in model.graph.node:
        value = next((entry.t for entry in node.attribute if entry.name == "value"), None)
        if node.op_type == "Constant" and value is not None and value.data_type in FLOATS and value.dims:
            constants.append(node)
            model.graph.initializer.append(value)
            model.graph.initializer[-1].name = node.output[0]
    for node in constants:
        model.graph.node.remove(node)


def _drop_weights(model: Any) -> None:
    """Drop the values of large weights, since shape inference copies the entire model."""
    small = 1024
    for tensor in model.graph.initializer:
        size = 1
        for extent in tensor.dims:
            size *= max(extent, 0)
        if size > small:
            for name in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                tensor.ClearField(name)


def _graph(model: Any, path: Path, notes: tuple[str, ...]) -> RecordedGraph:
    shapes: dict[str, tuple[int, ...]] = {}
    for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(extent.HasField("dim_value") for extent in kind.shape.dim):
            shapes[value.name] = tuple(extent.dim_value for extent in kind.shape.dim)
    weights: set[str] = set()
    constants: set[str] = set()
    for tensor in model.graph.initializer:
        shapes[tensor.name] = tuple(tensor.dims)
        (weights if tensor.data_type in FLOATS and tensor.dims else constants).add(tensor.name)
    for node in model.graph.node:
        # Exporters write equal weights once, and transpose or copy them in the graph.
        if node.op_type in _ALIASES and node.input and node.input[0] in weights and len(node.output) == 1:
            weights.add(node.output[0])
    inputs = tuple(value.name for value in model.graph.input if value.name not in weights | constants)
    for name in inputs:
        if name not in shapes:
            raise RequestError(f"{path.name}: input {name!r} has no shape; export with fixed shapes")
    nodes = []
    for number, node in enumerate(model.graph.node):
        standard = node.domain in ("", "ai.onnx")
        nodes.append(
            GraphCall(
                name=node.name or f"{node.op_type}.{number}",
                target=node.op_type if standard else f"{node.domain}.{node.op_type}",
                inputs=tuple(node.input),
                outputs=tuple(node.output),
                attributes={one.name: _attribute(one) for one in node.attribute},
                block=_block(node.name),
            )
        )
    first = shapes[inputs[0]] if inputs else ()
    return RecordedGraph(
        name=model.graph.name or path.stem,
        source=path.name,
        nodes=tuple(nodes),
        shapes=shapes,
        inputs=inputs,
        weights=frozenset(weights),
        constants=frozenset(constants),
        batch=first[0] if first and first[0] > 0 else 1,
        notes=notes,
    )


def _block(name: str) -> str:
    """Return the modules of a node of PyTorch's exporter: for "/layer1/layer1.0/conv1/Conv" layer1.0.conv1."""
    block = ""
    for part in name.split("/")[1:-1]:
        block = part if part.startswith(f"{block}.") or not block else f"{block}.{part}"
    return block[:400]


def _attribute(one: Any) -> Any:
    """Return the value of an attribute: a number, a text, or a list of numbers; None for graphs and tensors."""
    match one.type:
        case 1:
            return one.f
        case 2:
            return one.i
        case 3:
            return one.s.decode("utf-8", "replace")
        case 6:
            return list(one.floats)
        case 7:
            return list(one.ints)
    return None
