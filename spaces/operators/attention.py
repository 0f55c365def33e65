"""The core of attention: scores, softmax and weighted values, as one operator."""

from forerun.spaces.operators.axes import Axis, AxisKind, CutOperator, Dimension, Operand, follow


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
