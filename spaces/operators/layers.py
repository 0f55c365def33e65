"""Operators of layers: fully connected, element by element, and attention."""

from collections.abc import Mapping

from forerun.spaces.operators.axes import Axis, AxisKind, CutOperator, Dimension, Operand, follow


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


def attention_core(
    name: str,
    *,
    batch: int,
    queries: int,
    keys: int,
    kv_heads: int,
    group: int,
    head_dim: int,
    value_head_dim: int | None = None,
) -> CutOperator:
    """Return attention of ``kv_heads * group`` query heads over ``kv_heads`` key and value heads.

    Heads and queries may be cut. Keys may not (softmax needs all of them), so a cut sequence gathers keys and values:
    context parallelism. Key heads are not copied: tensor parallelism cuts ``kv_heads`` first and the group second.
    """
    wide = head_dim if value_head_dim is None else value_head_dim
    axes = (
        Axis(name="batch", size=batch, kind=AxisKind.BATCH),
        Axis(name="sequence", size=queries, kind=AxisKind.BATCH),
        Axis(name="kv_heads", size=kv_heads, kind=AxisKind.PARALLEL),
        Axis(name="group", size=group, kind=AxisKind.PARALLEL),
        Axis(name="value_dim", size=wide, kind=AxisKind.OPAQUE),
        Axis(name="keys", size=keys, kind=AxisKind.OPAQUE),
        Axis(name="head_dim", size=head_dim, kind=AxisKind.OPAQUE),
    )
    return CutOperator(
        name=name,
        kind="attention",
        multiply_adds=batch * queries * keys * kv_heads * group * (head_dim + wide),
        form="attention",
        axes=axes,
        inputs=(
            Operand(name="queries", dimensions=follow(("batch", "sequence", "kv_heads", "group", "head_dim"))),
            Operand(name="keys", dimensions=follow(("batch", "keys", "kv_heads", "head_dim"))),
            Operand(name="values", dimensions=follow(("batch", "keys", "kv_heads", "value_dim"))),
        ),
        output=Operand(
            name=name,
            dimensions=(*follow(("batch", "sequence", "kv_heads", "group")), Dimension(axis="value_dim")),
        ),
    )
