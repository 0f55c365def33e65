"""Lookups in tables."""

from collections.abc import Mapping

from forerun.spaces.operators.axes import Axis, AxisKind, Operand, Operator, follow


def embedding(
    name: str,
    *,
    batch: Mapping[str, int],
    rows: int,
    width: int,
    tables: int = 1,
    lookups: int = 1,
    source: str = "ids",
    result: str | None = None,
    weight: str | None = None,
) -> Operator:
    """Return a lookup of ``lookups`` rows per sample in each of ``tables`` tables, which are added up.

    A lookup is a product with rows of which one entry is one, so the rows of a table are a sum: a part of them gives
    zeros for all ids that it does not have, and the parts are added up (the vocabulary-parallel embedding of
    Megatron-LM, arXiv 1909.08053). Tables may be dealt to devices (recommendation models).
    """
    several = ("tables",) if tables > 1 else ()
    axes = [Axis(name=axis, size=size, kind=AxisKind.BATCH) for axis, size in batch.items()]
    axes += [Axis(name="tables", size=tables, kind=AxisKind.PARALLEL)] if several else []
    axes += [
        Axis(name="width", size=width, kind=AxisKind.PARALLEL),
        Axis(name="rows", size=rows, kind=AxisKind.REDUCE),
        Axis(name="lookups", size=lookups, kind=AxisKind.OPAQUE),
    ]
    return Operator(
        name=name,
        kind="embedding",
        form="embedding",
        axes=tuple(axes),
        inputs=(Operand(name=source, dimensions=follow((*batch, *several, "lookups")), element_bytes=8.0),),
        weights=(Operand(name=weight or f"{name}.weight", dimensions=follow((*several, "rows", "width"))),),
        output=Operand(name=result or name, dimensions=follow((*batch, *several, "width"))),
        differentiable=False,
    )
