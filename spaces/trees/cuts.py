"""Laws of a tree on an operator graph: the cut axes of every operator, and their devices."""

import math
from collections.abc import Mapping
from dataclasses import replace

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

    Raises
    ------
    TreeError
        An axis is unknown or does not divide, the number of parts is not the number of the stage's devices, or the tree
        requires settings that operators do not have; the error has the path of the node.
    """
    known = {axis.name for operator in graph.operators for axis in operator.axes if axis.kind is not AxisKind.OPAQUE}
    operators = {operator.name: operator for operator in graph.operators}
    kind = schedule_of(tree.order)
    if kind.splits_backward or kind.streams > 1:
        raise TreeError(("schedule", "order"), "operator graphs run under 1f1b, gpipe or interleaved")
    cuts: dict[str, tuple[Cut, ...]] = {}
    for stage in tree.stages:
        degrees_of = _degrees_of(graph, stage)
        for leaf in stage.leaves:
            degrees = degrees_of.get(leaf.layer, {})
            _check(leaf, degrees, stage, known)
            cuts[leaf.layer] = _cuts(operators[leaf.layer], leaf, degrees)
        _check_dealt(graph, stage)
    return cuts


def _degrees_of(graph: OperatorGraph, stage: Stage) -> Mapping[str, Mapping[str, int]]:
    """Return the degrees of every cut operator of a stage."""
    # Degrees are those of the tree, or taken from the cut of a neighbour's tensor, first of the inputs and second of
    # the readers. Other operators have no neighbour to follow. An operator that needs another's sum does not follow:
    # the sum is on all devices.
    members = {leaf.layer for leaf in stage.leaves if not leaf.compute.deal}
    degrees = {
        leaf.layer: leaf.compute.cut for leaf in stage.leaves if leaf.compute.cut is not None and not leaf.compute.deal
    }
    if not degrees or len(degrees) == len(members):
        return degrees
    for operator in graph.ordered:
        if operator.name in members and operator.name not in degrees:
            for operand in operator.inputs:
                producer = graph.producers.get(operand.name)
                if producer is not None and producer.name in degrees:
                    degrees[operator.name] = _carried(degrees[producer.name], producer.output, operand)
                    break
    for operator in reversed(graph.ordered):
        if operator.name in members and operator.name not in degrees:
            for consumer in graph.consumers.get(operator.output.name, ()):
                if consumer.name in degrees:
                    operand = next(one for one in consumer.inputs if one.name == operator.output.name)
                    degrees[operator.name] = _carried(degrees[consumer.name], operand, operator.output)
                    break
    return degrees


def _carried(degrees: Mapping[str, int], source: Operand, target: Operand) -> Mapping[str, int]:
    """Return the ``degrees`` of the ``source`` of a tensor for its ``target``."""
    # Degrees map dimension by dimension where both sides have equally many, otherwise by name; along other cuts the
    # work is repeated.
    same_rank = len(source.axes) == len(target.axes)
    partner = dict(zip(source.axes, target.axes, strict=True)) if same_rank else {name: name for name in target.axes}
    carried: dict[str, int] = {}
    for axis, degree in degrees.items():
        copies = "average" if axis == "average" else "replicate"
        name = partner.get(axis, "replicate") if axis in source.axes else copies
        carried[name] = carried.get(name, 1) * degree
    return carried


def _check_dealt(graph: OperatorGraph, stage: Stage) -> None:
    """Refuse dependent layers that are assigned to different devices: these would alternate, not share the work."""
    dealt = {leaf.layer: leaf for leaf in stage.leaves if leaf.compute.deal}
    needs: dict[str, str] = {}  # the distributed layer on which an operator depends, directly or not
    for operator in graph.ordered if dealt else ():
        for operand in operator.inputs:
            producer = graph.producers.get(operand.name)
            if producer is not None:
                needed = producer.name if producer.name in dealt else needs.get(producer.name)
                if needed is not None:
                    needs[operator.name] = needed
        if operator.name in dealt and operator.name in needs:
            raise TreeError(
                (*dealt[operator.name].place, "compute", "deal"),
                f"layers on separate devices run at the same time, but {operator.name} needs "
                f"{needs[operator.name]}; distribute layers that do not need each other, like tables",
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
    parts, count = math.prod(degrees.values()), len(devices_of(leaf, stage))
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

    Raises
    ------
    TreeError
        It names a device outside the stage.
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
    cuts = tuple(
        replace(cut, averaged=COPIES.get(axis, False))
        for cut, axis in zip(layout_cuts(operator, degrees), degrees, strict=True)
    )
    try:
        check_cuts(operator, cuts)
    except RequestError as error:
        raise TreeError((*leaf.place, "compute", "cut"), str(error)) from None
    return cuts
