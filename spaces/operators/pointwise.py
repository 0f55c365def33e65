"""Operators that pass once over their elements: activations, sums, norms, losses."""

from collections.abc import Mapping

from forerun.spaces.operators.axes import Axis, AxisKind, CutOperator, Operand, follow


def pointwise(
    name: str,
    *,
    form: str,
    batch: Mapping[str, int],
    axes: Mapping[str, int],
    opaque: Mapping[str, int] | None = None,
    sources: tuple[str, ...] = ("x",),
    result: str | None = None,
    weight_axes: tuple[str, ...] = (),
) -> CutOperator:
    """Return an operator whose output has the shape of each of its inputs.

    ``form``: name of its memory-bound cost ("gelu", "residual_add", "layernorm", ...). ``axes`` can be cut, ``opaque``
    ones cannot (a norm needs its entire row). ``weight_axes``: axes of a weight (none: no weight).
    """
    closed = dict(opaque or {})
    all_axes = [Axis(name=axis, size=size, kind=AxisKind.BATCH) for axis, size in batch.items()]
    all_axes += [Axis(name=axis, size=size, kind=AxisKind.PARALLEL) for axis, size in axes.items()]
    all_axes += [Axis(name=axis, size=size, kind=AxisKind.OPAQUE) for axis, size in closed.items()]
    dimensions = follow((*batch, *axes, *closed))
    weights = (Operand(name=f"{name}.weight", dimensions=follow(weight_axes)),) if weight_axes else ()
    return CutOperator(
        name=name,
        kind="pointwise",
        form=form,
        axes=tuple(all_axes),
        inputs=tuple(Operand(name=source, dimensions=dimensions) for source in sources),
        weights=weights,
        output=Operand(name=result or name, dimensions=dimensions),
    )
