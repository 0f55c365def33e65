"""Operator graphs as operators with cuttable axes, one ``OperatorGraph`` per batch size.

Every tensor is [batch, channels, spatial axes] (features after flattening are channels). Cuttable axes: "batch",
"channels" of the output, "in_channels" of a weight's contraction, "height", "width", "depth", "rows" of a table. Axes
are opaque where positions of the output do not correspond to positions of the input (flattening, joining).
"""

from collections.abc import Sequence

from forerun.spaces.operators import (
    Axis,
    AxisKind,
    CutOperator,
    Dimension,
    Operand,
    OperatorGraph,
    follow,
    spatial_axes,
)
from forerun.spaces.operators.axes import SPATIAL
from forerun.spaces.opgraph.model import GraphModel
from forerun.spaces.opgraph.operator import Kind, Shape
from forerun.spaces.opgraph.operator import Operator as GraphOperator

INPUT = "input"
"""Name of the model's input."""
_SAME_SHAPE = frozenset(
    {Kind.ACTIVATION, Kind.ADD, Kind.MULTIPLY, Kind.DROPOUT, Kind.BATCH_NORM, Kind.COPY, Kind.POOL, Kind.CONV}
)
"""Kinds whose output corresponds to their input position by position (or window by window) along all axes."""
_SAME_SPACE = _SAME_SHAPE | {Kind.CONCAT, Kind.UPSAMPLE, Kind.CONV_TRANSPOSE, Kind.SOFTMAX, Kind.LOSS}
"""Kinds whose output corresponds to their input along spatial axes, but not along channels."""


def operator_graph(model: GraphModel, batch: int) -> OperatorGraph:
    """Return a model on ``batch`` samples as a graph of operators."""
    return OperatorGraph(
        name=model.name, operators=tuple(operator_axes(operator, batch) for operator in model.operators)
    )


def operator_axes(operator: GraphOperator, batch: int) -> CutOperator:
    """Return one operator on ``batch`` samples with its cuttable axes."""
    extents = len(operator.output) - 1 if operator.kind is not Kind.LINEAR else 0
    spatial = spatial_axes(extents) if 1 <= extents <= len(SPATIAL) else ()
    out = ("channels", *spatial) if spatial else tuple(f"feature{n}" for n in range(len(operator.output)))
    if operator.kind in (Kind.LINEAR, Kind.EMBEDDING) or len(operator.output) == 1:
        out = (*out[:-1], "channels")
    sums = _summed(operator)
    axes = [Axis(name="batch", size=batch, kind=AxisKind.BATCH)]
    axes += [
        Axis(name=name, size=size, kind=_kind_of(operator, name), even=False)
        for name, size in zip(out, operator.output, strict=True)
    ]
    axes += [Axis(name=name, size=size, kind=AxisKind.REDUCE, even=False) for name, size in sums.items()]
    shapes = (operator.input, *operator.extra_inputs)
    # Ids of a lookup are a separate input, located on the device of the lookup.
    ids = operator.kind is Kind.EMBEDDING
    names = operator.inputs or (f"ids of {operator.name}" if ids else INPUT,)
    inputs = []
    for place, name in enumerate(names):
        shape = shapes[min(place, len(shapes) - 1)]
        dimensions, more = _input(operator, shape, out, place)
        axes += [axis for axis in more if axis.name not in {known.name for known in axes}]
        inputs.append(Operand(name=name, dimensions=dimensions, element_bytes=8.0 if ids else None))
    return CutOperator(
        name=operator.name,
        kind=operator.kind.value,
        form="contraction" if operator.macs else operator.kind.value,
        axes=tuple(axes),
        inputs=tuple(inputs),
        weights=_weights(operator, sums),
        output=Operand(name=operator.name, dimensions=follow(("batch", *out))),
        differentiable=operator.kind is not Kind.EMBEDDING,
        multiply_adds=operator.macs * batch,
    )


def _kind_of(operator: GraphOperator, name: str) -> AxisKind:
    """Return the kind of an output axis, which determines the effect of a cut."""
    weighted = operator.kind in (Kind.CONV, Kind.CONV_TRANSPOSE, Kind.LINEAR, Kind.EMBEDDING)
    if name == "channels":
        return AxisKind.PARALLEL if weighted or operator.kind in _SAME_SHAPE else AxisKind.OPAQUE
    if name in ("height", "width", "depth"):
        return AxisKind.PARALLEL if same_space(operator) else AxisKind.OPAQUE
    return AxisKind.OPAQUE


def same_space(operator: GraphOperator) -> bool:
    """Check whether parts of an image can be computed separately: inputs and output have the same spatial axes.

    A view is a crop where it does not change channels.
    """
    shapes = (operator.input, *operator.extra_inputs)
    if any(len(shape) != len(operator.output) for shape in shapes):
        return False
    crop = operator.kind is Kind.VIEW and operator.input[0] == operator.output[0]
    return len(operator.output) > 1 and (operator.kind in _SAME_SPACE or crop)


def _summed(operator: GraphOperator) -> dict[str, int]:
    """Return the axes over which a weight sums."""
    if operator.kind in (Kind.CONV, Kind.CONV_TRANSPOSE, Kind.LINEAR) and operator.groups == 1:
        return {"in_channels": operator.channels_in}
    return {"rows": operator.rows} if operator.kind is Kind.EMBEDDING else {}


def _input(
    operator: GraphOperator, shape: Shape, out: Sequence[str], place: int
) -> tuple[tuple[Dimension, ...], list[Axis]]:
    """Return the dimensions of an input, and the axes that the output does not have."""
    if operator.kind in _SAME_SHAPE and len(shape) == len(out):
        first = _channels(operator, shape)
        spatial = [_window(operator, number, axis, shape) for number, axis in enumerate(out[1:])]
        # A single value for all positions is replicated over their parts.
        axes = []
        for number, (extent, size) in enumerate(zip(shape[1:], operator.output[1:], strict=True)):
            if extent == 1 < size and not operator.kernel:
                axes.append(Axis(name=f"{INPUT}{place}_{number + 1}", size=1, kind=AxisKind.OPAQUE))
                spatial[number] = Dimension(axis=axes[-1].name)
        return (Dimension(axis="batch"), first, *spatial), axes
    if operator.kind is Kind.LINEAR:
        return (Dimension(axis="batch"), *follow(out[:-1]), Dimension(axis="in_channels")), []
    axes = [Axis(name=f"{INPUT}{place}_{n}", size=size, kind=AxisKind.OPAQUE) for n, size in enumerate(shape)]
    dimensions = list(follow(axis.name for axis in axes))
    if operator.kind is Kind.CONV_TRANSPOSE and operator.groups == 1:
        dimensions[0] = Dimension(axis="in_channels")
    if same_space(operator):
        dimensions[1:] = [Dimension(axis=axis, extent=extent) for axis, extent in zip(out[1:], shape[1:], strict=True)]
    used = {dimension.axis for dimension in dimensions}
    return (Dimension(axis="batch"), *dimensions), [axis for axis in axes if axis.name in used]


def _channels(operator: GraphOperator, shape: Shape) -> Dimension:
    """Return the channel dimension of an input with the output's rank; groups are cut with their outputs."""
    if operator.kind is Kind.CONV and operator.groups == 1:
        return Dimension(axis="in_channels")
    return Dimension(axis="channels", extent=shape[0])


def _window(operator: GraphOperator, number: int, axis: str, shape: Shape) -> Dimension:
    if not operator.kernel:
        return Dimension(axis=axis, extent=shape[number + 1])
    spread = operator.dilation[number] if operator.dilation else 1
    stride = operator.stride[number] if operator.stride else 1
    reach = spread * (operator.kernel[number] - 1) + 1
    return Dimension(axis=axis, step=stride, halo=max(reach - stride, 0), extent=shape[number + 1])


def _weights(operator: GraphOperator, sums: dict[str, int]) -> tuple[Operand, ...]:
    if not operator.parameters:
        return ()
    if not sums or operator.kind is Kind.GENERIC:
        axis = "channels" if operator.kind in (Kind.BATCH_NORM, Kind.CONV) else None
        dimensions = follow((axis,)) if axis else ()
    else:
        dimensions = follow((*sums, "channels"))
    return (Operand(name=f"{operator.name}.weight", dimensions=dimensions, count=operator.parameters),)
