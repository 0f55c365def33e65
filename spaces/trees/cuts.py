"""Laws of a tree on an operator graph: which axes of which operator are cut, and on how many devices."""

from collections.abc import Mapping

from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.operators import AxisKind, Cut, CutOperator, OperatorGraph, check_cuts
from forerun.spaces.strategies import Recompute, Schedule
from forerun.spaces.trees.resolve import Leaf, ResolvedTree, Stage
from forerun.spaces.trees.values import TreeError

COPIES = {"replicate": False, "average": True}
"""Words in place of an axis: devices that repeat the work; whether the gradients of their weights are added up among
all copies, as a data-parallel wrapper around all devices does."""

_DEGREES = ("dp", "tp", "cp", "ep", "etp", "sp")


def legal_cuts(graph: OperatorGraph, tree: ResolvedTree) -> Mapping[str, tuple[Cut, ...]]:
    """Return the cuts of every operator of a graph (one microbatch), outermost first.

    An operator that has not got an axis, or has it where it cannot be cut, does the same work on all parts of it. One
    that is dealt out is not cut.

    Raises:
        TreeError: an axis is unknown or does not divide, the parts are not as many as the devices of the stage, or the
            tree asks for what operators do not have; the error has the path of the node.
    """
    known = {axis.name for operator in graph.operators for axis in operator.axes if axis.kind is not AxisKind.OPAQUE}
    by_layer: dict[str, list[CutOperator]] = {}
    for operator in graph.ordered:
        by_layer.setdefault(graph.layer(operator), []).append(operator)
    if tree.order not in (Schedule.ONE_F_ONE_B, Schedule.GPIPE, Schedule.INTERLEAVED):
        raise TreeError(("schedule", "order"), "operator graphs run under 1f1b, gpipe or interleaved")
    cuts: dict[str, tuple[Cut, ...]] = {}
    for stage in tree.stages:
        for leaf in stage.leaves:
            _check(leaf, stage, known)
            for operator in by_layer[leaf.layer]:
                cuts[operator.name] = () if leaf.compute.deal else _cuts(operator, leaf)
        _check_dealt(graph, stage)
    return cuts


def _check_dealt(graph: OperatorGraph, stage: Stage) -> None:
    """Refuse layers that are dealt to different devices and need each other: they would take turns, not share."""
    dealt = {leaf.layer: leaf for leaf in stage.leaves if leaf.compute.deal}
    behind: dict[str, str] = {}  # a dealt layer that an operator needs, however far before it
    for operator in graph.ordered if dealt else ():
        for operand in operator.inputs:
            producer = graph.producers.get(operand.name)
            if producer is not None:
                before = graph.layer(producer)
                found = before if before in dealt else behind.get(producer.name)
                if found is not None:
                    behind[operator.name] = found
        layer = graph.layer(operator)
        if layer in dealt and operator.name in behind:
            raise TreeError(
                (*dealt[layer].place, "compute", "deal"),
                f"layers that are dealt out work at the same time, but {layer} needs {behind[operator.name]}; deal out "
                "layers that do not need each other, like tables",
            )


def _check(leaf: Leaf, stage: Stage, known: set[str]) -> None:
    for name in _DEGREES:
        if getattr(leaf.compute, name) not in (None, 1, False):
            raise TreeError(
                (*leaf.place, "compute", name), f"{name} is for transformers; cut axes, like cut: {{batch: 4}}"
            )
    if leaf.host:
        raise TreeError((*leaf.place, "memory", "host"), "tensors of operator graphs stay on their devices")
    if leaf.recompute == Recompute.SELECTIVE:
        raise TreeError((*leaf.place, "schedule", "recompute"), "selective is about attention; use full or none")
    degrees = dict(leaf.compute.cut or {})
    if leaf.compute.deal:
        return
    for axis in degrees:
        if axis not in known and axis not in COPIES:
            raise TreeError((*leaf.place, "compute", "cut", axis), str(unknown("axis", axis, {*known, *COPIES})))
    parts = 1
    for degree in degrees.values():
        parts *= degree
    if parts != len(stage.devices):
        raise TreeError(
            (*leaf.place, "compute", "cut"),
            f"layer {leaf.layer} is cut in {parts} parts, but its stage has {len(stage.devices)} devices; cut axes so "
            f"that the parts multiply to {len(stage.devices)}",
        )


def _cuts(operator: CutOperator, leaf: Leaf) -> tuple[Cut, ...]:
    open_axes = {axis.name for axis in operator.axes if axis.kind is not AxisKind.OPAQUE}
    cuts = tuple(
        Cut(axis=axis if axis in open_axes else None, degree=degree, averaged=COPIES.get(axis, False))
        for axis, degree in (leaf.compute.cut or {}).items()
    )
    try:
        check_cuts(operator, cuts)
    except RequestError as error:
        raise TreeError((*leaf.place, "compute", "cut"), str(error)) from None
    return cuts
