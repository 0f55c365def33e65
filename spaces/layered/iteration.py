"""A layer-by-layer model as a graph of iteration spaces, in which any axis of any operator may be cut.

The closed forms know a few uniform ways to split; here every operator may be cut in its own way, and the communication
follows from what its neighbours need. Views disappear: their readers read what the view is of.
"""

import math
from collections.abc import Callable, Mapping

from forerun.spaces.errors import RequestError
from forerun.spaces.layered.model import LayeredModel
from forerun.spaces.layered.operator import Kind, Operator
from forerun.spaces.operators import (
    Axis,
    AxisKind,
    Dimension,
    Operand,
    OperatorGraph,
    convolution,
    embedding,
    follow,
    linear,
    pooling,
)
from forerun.spaces.operators import Operator as IterationOperator
from forerun.spaces.operators.convolution import spatial_axes

INPUT = "input"
"""Name of the model's input among the tensors of the graph."""

POINTWISE = frozenset(
    {
        Kind.BATCH_NORM,
        Kind.LAYER_NORM,
        Kind.ACTIVATION,
        Kind.ADD,
        Kind.MULTIPLY,
        Kind.DROPOUT,
        Kind.SOFTMAX,
        Kind.COPY,
        Kind.LOSS,
        Kind.CONCAT,
        Kind.UPSAMPLE,
        Kind.VIEW,
    }
)
"""Kinds whose output follows the shapes of their inputs, element by element or along the channels."""

WHOLE_ROWS = frozenset({Kind.LAYER_NORM, Kind.SOFTMAX, Kind.LOSS, Kind.CONCAT})
"""Kinds that need all channels of a point at once."""


def iteration_graph(model: LayeredModel, batch: int) -> OperatorGraph:
    """Return the operators of ``model`` over ``batch`` samples.

    Raises:
        RequestError: an operator has no iteration space here (products of two activations).
    """
    made: dict[str, str] = {}
    found: list[IterationOperator] = []
    for operator in model.operators:
        sources = tuple(made[name] for name in operator.inputs) or (INPUT,)
        if operator.kind is Kind.VIEW and math.prod(operator.input) == math.prod(operator.output):
            made[operator.name] = sources[0]
            continue
        if operator.kind is Kind.EMBEDDING:
            sources = (f"{operator.name}.ids",)
        found.append(_iterated(operator, batch, sources))
        made[operator.name] = operator.name
    return OperatorGraph(name=model.name, operators=tuple(found))


def _iterated(operator: Operator, batch: int, sources: tuple[str, ...]) -> IterationOperator:
    if operator.kind in POINTWISE:
        return _pointwise(operator, batch, sources)
    make = _MAKERS.get(operator.kind)
    if make is None or len(operator.spatial) > 3:
        raise RequestError(
            f"operator {operator.name} ({operator.kind.value}) has no iteration space; mixtures are for networks of "
            f"convolutions, pools, linear layers and element-wise operators"
        )
    return make(operator, batch, sources[0])


def _convolution(operator: Operator, batch: int, source: str) -> IterationOperator:
    return convolution(
        operator.name,
        batch=batch,
        in_channels=operator.channels_in,
        out_channels=operator.filters,
        output_size=operator.spatial,
        kernel=operator.kernel,
        stride=operator.stride,
        dilation=operator.dilation or None,
        input_size=operator.input_spatial,
        groups=operator.groups,
        bias=operator.bias,
        source=source,
    )


def _transposed(operator: Operator, batch: int, source: str) -> IterationOperator:
    """A transposed convolution whose windows do not overlap: every input point makes a window of outputs."""
    axes = spatial_axes(len(operator.input_spatial))
    steps = operator.stride
    return IterationOperator(
        name=operator.name,
        kind="convolution",
        form="contraction",
        axes=(
            Axis(name="batch", size=batch, kind=AxisKind.BATCH),
            Axis(name="out_channels", size=operator.filters, kind=AxisKind.PARALLEL),
            *(
                Axis(name=axis, size=size, kind=AxisKind.PARALLEL)
                for axis, size in zip(axes, operator.input_spatial, strict=True)
            ),
            Axis(name="in_channels", size=operator.channels_in, kind=AxisKind.REDUCE),
            Axis(name="window", size=operator.kernel_volume, kind=AxisKind.OPAQUE),
        ),
        inputs=(Operand(name=source, dimensions=follow(("batch", "in_channels", *axes))),),
        weights=(
            Operand(name=f"{operator.name}.weight", dimensions=follow(("in_channels", "window", "out_channels"))),
        ),
        output=Operand(
            name=operator.name,
            dimensions=(
                *follow(("batch", "out_channels")),
                *(
                    Dimension(axis=axis, step=step, extent=extent)
                    for axis, step, extent in zip(axes, steps, operator.spatial, strict=True)
                ),
            ),
        ),
        multiply_adds=operator.macs * batch,
    )


def _linear(operator: Operator, batch: int, source: str) -> IterationOperator:
    positions = math.prod(operator.output[:-1])
    return linear(
        operator.name,
        batch={"batch": batch, **({"positions": positions} if positions > 1 else {})},
        outputs={"out_channels": operator.filters},
        inputs={"in_channels": operator.channels_in},
        source=source,
        bias=operator.bias,
    )


def _pool(operator: Operator, batch: int, source: str) -> IterationOperator:
    kernel = operator.kernel or tuple(
        max(before // after, 1) for before, after in zip(operator.input_spatial, operator.spatial, strict=True)
    )
    return pooling(
        operator.name,
        batch=batch,
        channels=operator.filters,
        output_size=operator.spatial,
        window=kernel,
        stride=operator.stride or kernel,
        input_size=operator.input_spatial,
        source=source,
    )


def _embedding(operator: Operator, batch: int, source: str) -> IterationOperator:
    return embedding(
        operator.name,
        batch={"batch": batch},
        rows=operator.rows,
        width=operator.output[-1],
        lookups=operator.lookups,
        source=source,
    )


_MAKERS: Mapping[Kind, Callable[[Operator, int, str], IterationOperator]] = {
    Kind.CONV: _convolution,
    Kind.CONV_TRANSPOSE: _transposed,
    Kind.LINEAR: _linear,
    Kind.POOL: _pool,
    Kind.EMBEDDING: _embedding,
}


def _pointwise(operator: Operator, batch: int, sources: tuple[str, ...]) -> IterationOperator:
    """Channels and space may be cut; inputs of other extents (crops, parts of a concatenation) say theirs."""
    spatial = operator.output[1:]
    if len(spatial) > 3:
        raise RequestError(f"operator {operator.name} has {len(spatial)} spatial axes; at most 3 have names")
    names = spatial_axes(len(spatial)) if spatial else ()
    channels = AxisKind.OPAQUE if operator.kind in WHOLE_ROWS else AxisKind.PARALLEL
    axes = (
        Axis(name="batch", size=batch, kind=AxisKind.BATCH),
        Axis(name="channels", size=operator.output[0], kind=channels),
        *(Axis(name=name, size=size, kind=AxisKind.PARALLEL) for name, size in zip(names, spatial, strict=True)),
    )
    dimensions = follow(("batch", "channels", *names))
    shapes = (operator.input, *operator.extra_inputs)
    if any(len(shape) != len(operator.output) for shape in shapes):
        raise RequestError(f"operator {operator.name} joins shapes of different numbers of axes; mixtures do not")
    inputs = tuple(
        Operand(
            name=source,
            dimensions=(
                dimensions[0],
                *(
                    Dimension(axis=dimension.axis, extent=None if extent == own else extent)
                    for dimension, extent, own in zip(dimensions[1:], shape, operator.output, strict=True)
                ),
            ),
        )
        for source, shape in dict(zip(sources, shapes, strict=False)).items()
    )
    norm = operator.kind is Kind.BATCH_NORM
    weights = (Operand(name=f"{operator.name}.weight", dimensions=follow(("channels",))),) if norm else ()
    return IterationOperator(
        name=operator.name,
        kind="pointwise",
        form="copy",
        axes=axes,
        inputs=inputs,
        weights=weights,
        output=Operand(name=operator.name, dimensions=dimensions),
    )
