"""Laws of a tree on an operator graph: the cut axes of every operator, and their devices."""

import math
from collections.abc import Mapping, Sequence

from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.operators import AxisKind, Cut, CutOperator, Operand, OperatorGraph, check_cuts
from forerun.spaces.schedules.catalogue import schedule_of
from forerun.spaces.strategies import Recompute
from forerun.spaces.trees.resolve import Leaf, ResolvedTree, Stage
from forerun.spaces.trees.values import TreeError

COPIES = {"replicate": False, "average": True}
"""Names, in place of an axis, for devices that repeat the work. The values are whether the gradients of their weights
are summed over all copies, as by a data-parallel wrapper around all devices."""

_DEGREES = ("dp", "tp", "cp", "ep", "etp", "sp")


def legal_cuts(graph: OperatorGraph, tree: ResolvedTree) -> Mapping[str, tuple[Cut, ...]]:
    """Return the cuts of every operator of a graph (one microbatch), outermost first.

    An operator without an axis, or with an uncuttable one, is repeated on all its parts. A distributed layer is not
    cut. An operator without settings in its node or above takes the layout of its neighbours.

    Raises:
        TreeError: an axis is unknown or does not divide, the number of parts is not the number of the stage's devices,
            or the tree requires settings that operators do not have; the error has the path of the node.
    """
    known = {axis.name for operator in graph.operators for axis in operator.axes if axis.kind is not AxisKind.OPAQUE}
    by_layer: dict[str, list[CutOperator]] = {}
    for operator in graph.ordered:
        by_layer.setdefault(graph.layer(operator), []).append(operator)
    kind = schedule_of(tree.order)
    if kind.splits_backward or kind.streams > 1:
        raise TreeError(("schedule", "order"), "operator graphs run under 1f1b, gpipe or interleaved")
    cuts: dict[str, tuple[Cut, ...]] = {}
    for stage in tree.stages:
        given: dict[str, Mapping[str, int]] = {}
        for leaf in stage.leaves:
            if leaf.compute.cut is not None and not leaf.compute.deal:
                given |= dict.fromkeys([operator.name for operator in by_layer[leaf.layer]], leaf.compute.cut)
        inferred = _inferred(graph, stage, given, by_layer)
        for leaf in stage.leaves:
            for operator in by_layer[leaf.layer]:
                degrees = {} if leaf.compute.deal else inferred.get(operator.name, {})
                _check(leaf, degrees, stage, known)
                cuts[operator.name] = () if leaf.compute.deal else _cuts(operator, leaf, degrees)
        _check_dealt(graph, stage)
    return cuts


def _inferred(
    graph: OperatorGraph,
    stage: Stage,
    given: Mapping[str, Mapping[str, int]],
    by_layer: Mapping[str, Sequence[CutOperator]],
) -> Mapping[str, Mapping[str, int]]:
    """Return the degrees of every operator of a stage.

    Degrees are ``given``, or taken from the cut of a neighbour's tensor, first of the inputs and second of the readers.
    Other operators have no neighbour to follow. An operator that needs another's sum does not follow: the sum is on all
    devices.
    """
    own = {one.name for leaf in stage.leaves if not leaf.compute.deal for one in by_layer[leaf.layer]}
    found = dict(given)
    if not given or len(found) == len(own):
        return found
    for operator in graph.ordered:
        if operator.name in own and operator.name not in found:
            for operand in operator.inputs:
                producer = graph.producers.get(operand.name)
                if producer is not None and producer.name in found:
                    found[operator.name] = _carried(found[producer.name], producer.output, operand)
                    break
    for operator in reversed(graph.ordered):
        if operator.name in own and operator.name not in found:
            for consumer in graph.consumers.get(operator.output.name, ()):
                if consumer.name in found:
                    operand = next(one for one in consumer.inputs if one.name == operator.output.name)
                    found[operator.name] = _carried(found[consumer.name], operand, operator.output)
                    break
    return found


def _carried(degrees: Mapping[str, int], here: Operand, there: Operand) -> Mapping[str, int]:
    """Return the degrees of one side of a tensor for the other side.

    Degrees map dimension by dimension where both sides have equally many, otherwise by name; along other cuts the work
    is repeated.
    """
    alike = len(here.axes) == len(there.axes)
    partner = dict(zip(here.axes, there.axes, strict=True)) if alike else {name: name for name in there.axes}
    carried: dict[str, int] = {}
    for axis, degree in degrees.items():
        name = partner.get(axis, "replicate") if axis in here.axes else "average" if axis == "average" else "replicate"
        carried[name] = carried.get(name, 1) * degree
    return carried


def _check_dealt(graph: OperatorGraph, stage: Stage) -> None:
    """Refuse dependent layers that are assigned to different devices: these would alternate, not share the work."""
    dealt = {leaf.layer: leaf for leaf in stage.leaves if leaf.compute.deal}
    behind: dict[str, str] = {}  # the distributed layer on which an operator depends, directly or not
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
                f"layers on devices of their own run at the same time, but {layer} needs {behind[operator.name]}; "
                "distribute layers that do not need each other, like tables",
            )


def _check(leaf: Leaf, degrees: Mapping[str, int], stage: Stage, known: set[str]) -> None:
    for name in _DEGREES:
        if getattr(leaf.compute, name) not in (None, 1, False):
            raise TreeError(
                (*leaf.place, "compute", name), f"{name} is for transformers; cut axes, like cut: {{batch: 4}}"
            )
    if leaf.recompute == Recompute.SELECTIVE:
        raise TreeError((*leaf.place, "schedule", "recompute"), "selective is about attention; use full or none")
    if leaf.compute.deal:
        return
    for axis in degrees:
        if axis not in known and axis not in COPIES:
            raise TreeError((*leaf.place, "compute", "cut", axis), str(unknown("axis", axis, {*known, *COPIES})))
    parts = 1
    for degree in degrees.values():
        parts *= degree
    count = len(devices_of(leaf, stage))
    if parts != count:
        where = "its stage has" if leaf.compute.on is None else "it runs on"
        raise TreeError(
            (*leaf.place, "compute", "cut"),
            f"layer {leaf.layer} is cut in {parts} parts, but {where} {count} devices; cut axes so that the parts "
            f"multiply to {count}",
        )
    for name, layout in leaf.layouts.items():
        for axis in layout:
            if axis not in known and axis not in COPIES:
                raise TreeError((*leaf.place, "memory", name, axis), str(unknown("axis", axis, {*known, *COPIES})))
        if math.prod(layout.values()) != count:
            raise TreeError(
                (*leaf.place, "memory", name),
                f"{name} of layer {leaf.layer} has {math.prod(layout.values())} parts, but the layer runs on {count} "
                "devices; add replicate for copies",
            )


def devices_of(leaf: Leaf, stage: Stage) -> tuple[int, ...]:
    """Return the devices of its stage on which a layer runs.

    Raises:
        TreeError: it names a device outside the stage.
    """
    if not leaf.compute.on:
        return stage.devices
    others = set(leaf.compute.on) - set(stage.devices)
    if others:
        raise TreeError(
            (*leaf.place, "compute", "on"), f"device {min(others)} is none of the stage of layer {leaf.layer}"
        )
    return leaf.compute.on


def layout_cuts(operator: CutOperator, parts: Mapping[str, int]) -> tuple[Cut, ...]:
    """Return parts by axis as cuts of an operator; parts along axes that it does not have are copies."""
    open_axes = {axis.name for axis in operator.axes if axis.kind is not AxisKind.OPAQUE}
    return tuple(Cut(axis=axis if axis in open_axes else None, degree=degree) for axis, degree in parts.items())


def _cuts(operator: CutOperator, leaf: Leaf, degrees: Mapping[str, int]) -> tuple[Cut, ...]:
    open_axes = {axis.name for axis in operator.axes if axis.kind is not AxisKind.OPAQUE}
    cuts = tuple(
        Cut(axis=axis if axis in open_axes else None, degree=degree, averaged=COPIES.get(axis, False))
        for axis, degree in degrees.items()
    )
    try:
        check_cuts(operator, cuts)
    except RequestError as error:
        raise TreeError((*leaf.place, "compute", "cut"), str(error)) from None
    return cuts
