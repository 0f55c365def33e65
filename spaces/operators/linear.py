"""Fully connected operators."""

from collections.abc import Mapping

from forerun.spaces.operators.axes import Axis, AxisKind, CutOperator, Operand, follow


def linear(
    name: str,
    *,
    batch: Mapping[str, int],
    outputs: Mapping[str, int],
    inputs: Mapping[str, int],
    source: str = "x",
    result: str | None = None,
    weight: str | None = None,
    bias: bool = False,
    opaque: tuple[str, ...] = (),
) -> CutOperator:
    """Return ``y[batch, outputs] = sum over inputs of x[batch, inputs] w[inputs, outputs]``.

    Each of the three may have several axes (heads and their width), given by name and size; axes in ``opaque`` cannot
    be cut. ``source`` and ``result`` name the tensors, ``weight`` a weight shared by several operators.
    """
    axes = [Axis(name=axis, size=size, kind=AxisKind.BATCH) for axis, size in batch.items()]
    axes += [_axis(axis, size, AxisKind.PARALLEL, opaque) for axis, size in outputs.items()]
    axes += [_axis(axis, size, AxisKind.REDUCE, opaque) for axis, size in inputs.items()]
    weights = [Operand(name=weight or f"{name}.weight", dimensions=follow((*inputs, *outputs)))]
    if bias:
        weights.append(Operand(name=f"{name}.bias", dimensions=follow(outputs)))
    return CutOperator(
        name=name,
        kind="linear",
        form="contraction",
        axes=tuple(axes),
        inputs=(Operand(name=source, dimensions=follow((*batch, *inputs))),),
        weights=tuple(weights),
        output=Operand(name=result or name, dimensions=follow((*batch, *outputs))),
    )


def _axis(name: str, size: int, kind: AxisKind, opaque: tuple[str, ...]) -> Axis:
    return Axis(name=name, size=size, kind=AxisKind.OPAQUE if name in opaque else kind)
