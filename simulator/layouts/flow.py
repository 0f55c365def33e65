"""Communication of a graph of operators, given the cuts of every operator.

A tensor is kept in the layout of its producer, or of its first consumer where the producer leaves partial sums. The
gradient of a tensor is kept in the tensor's layout. Consumers that need a tensor in one layout share one transfer, and
their contributions to a gradient in one layout are summed before the transfer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from forerun.simulator.layouts.infer import Transfer, fuse, halo, infer
from forerun.simulator.layouts.layout import Layout, operand_layout
from forerun.spaces.operators import Cut, CutOperator, Operand, OperatorGraph, check_cuts


class TransferPhase(StrEnum):
    """Phase of a step in which a transfer takes place."""

    FORWARD = "forward"
    BACKWARD = "backward"
    REGATHER = "again"
    """In the backward pass, for an input that was gathered in the forward pass and kept only in parts."""
    GRADIENT = "gradient"
    """For gradients of weights."""
    FETCH = "fetch"
    """For sharded weights, before a pass needs them."""
    UPDATE = "update"
    """For weights that the optimizer has updated in slices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The layout of one operator: its cuts, outermost first, and the device numbers in the order of the cuts.

    ``zero``: ZeRO stage from which optimizer states (1), gradients (2) and weights (3) are sharded over devices with
    equal copies. ``output``, ``gradient``: cuts in which the output and its gradient are kept, where these differ from
    the computed ones; ``input``: cuts of inputs without a producer, before they are read.
    """

    cuts: tuple[Cut, ...]
    devices: tuple[int, ...]
    zero: int = 0
    output: tuple[Cut, ...] | None = None
    gradient: tuple[Cut, ...] | None = None
    input: tuple[Cut, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Consecutive transfers that ``operator`` waits for (for gradients of weights: that it causes).

    ``joined``: the transfers of all joined needs of this operator in this phase are one all-to-all, stored in the first
    of them."""

    phase: TransferPhase
    operator: str
    tensor: str
    transfers: tuple[Transfer, ...]
    element_bytes: float | None = None
    joined: bool = False


class _Flow:
    """Collects the needs of one graph."""

    def __init__(self, graph: OperatorGraph, shares: Mapping[str, Share]) -> None:
        self.graph, self.shares = graph, shares
        self.needs: list[Need] = []
        self.kept: dict[str, Layout] = {}
        self.kept_gradient: dict[str, Layout] = {}
        self.read: set[tuple[str, Layout]] = set()

    def layout(
        self, operator: CutOperator, operand: Operand, *, summed: bool = False, averaged: bool = False
    ) -> Layout:
        share = self.shares[operator.name]
        return operand_layout(operator, operand, share.cuts, share.devices, summed=summed, averaged=averaged)

    def stored(
        self, operator: CutOperator, operand: Operand, cuts: tuple[Cut, ...] | None, otherwise: Layout
    ) -> Layout:
        """Return the layout in which a tensor is kept: by its ``cuts`` if it has any, otherwise ``otherwise``."""
        if cuts is None:
            return otherwise
        return operand_layout(operator, operand, cuts, self.shares[operator.name].devices)

    def add(
        self,
        phase: TransferPhase,
        operator: CutOperator,
        operand: Operand,
        transfers: Sequence[Transfer],
        name: str = "",
    ) -> None:
        if transfers:
            self.needs.append(
                Need(
                    phase=phase,
                    operator=operator.name,
                    tensor=name or operand.name,
                    transfers=tuple(transfers),
                    element_bytes=operand.element_bytes,
                )
            )

    def moved(self, made: Layout, wanted: Layout, operator: CutOperator, operand: Operand) -> tuple[Transfer, ...]:
        """Return the transfers of an operand of an operator from one layout to the other.

        Tensors that change their number of dimensions on the way (a flattened image) are treated as samples times the
        rest.
        """
        shape = operator.shape(operand)
        if len(made.degrees) != len(wanted.degrees):
            made, wanted = flattened(made), flattened(wanted)
            shape = (shape[0], operator.elements(operand) // shape[0])
        return infer(made, wanted, shape)


def flattened(layout: Layout) -> Layout:
    """Return a layout with all dimensions except the first merged; their parts are assigned in order."""
    rest = 1
    for degree in layout.degrees[1:]:
        rest *= degree
    return Layout((layout.degrees[0], rest), layout.devices, layout.partial)


def needs_of(
    graph: OperatorGraph,
    shares: Mapping[str, Share],
    *,
    input_gradients: bool = True,
) -> tuple[Need, ...]:
    """Return all communication of one training step of a graph, in the order in which its operators run.

    Tensors without a producer are placed where their first consumer needs them. ``input_gradients``: inputs of the
    graph have gradients as well.

    Raises:
        RequestError: an operator cannot be cut in this way, or the number of its parts is not the number of its
            devices.
    """
    flow = _Flow(graph, shares)
    for operator in graph.ordered:
        check_cuts(operator, shares[operator.name].cuts)
        _forward(flow, operator)
    for operator in reversed(graph.ordered):
        _backward(flow, operator, input_gradients)
    for operator in graph.ordered:
        _weights(flow, operator)
    return _with_joined(flow.needs)


def _with_joined(needs: Sequence[Need]) -> tuple[Need, ...]:
    """Return the needs with scatters (or gathers) of one operator, rooted at all members, as one all-to-all."""
    rooted: dict[tuple[str, ...], list[int]] = {}
    for place, need in enumerate(needs):
        kinds = {transfer.kind for transfer in need.transfers}
        if len(kinds) == 1 and kinds <= {"scatter", "gather"}:
            rooted.setdefault((need.phase, need.operator, *kinds), []).append(place)
    joined = list(needs)
    for places in rooted.values():
        fused = fuse(transfer for place in places for transfer in needs[place].transfers)
        if {transfer.kind for transfer in fused} == {"all_to_all"}:
            for place in places:
                joined[place] = replace(needs[place], transfers=fused if place == places[0] else (), joined=True)
    return tuple(joined)


def _forward(flow: _Flow, operator: CutOperator) -> None:
    share = flow.shares[operator.name]
    for operand in operator.inputs:
        wanted = flow.layout(operator, operand)
        have = flow.kept.setdefault(operand.name, flow.stored(operator, operand, share.input, wanted))
        flow.kept_gradient.setdefault(operand.name, have)
        if (operand.name, wanted) not in flow.read:
            flow.read.add((operand.name, wanted))
            flow.add(TransferPhase.FORWARD, operator, operand, flow.moved(have, wanted, operator, operand))
        widths = [dimension.halo for dimension in operand.dimensions]
        flow.add(TransferPhase.FORWARD, operator, operand, halo(wanted, operator.shape(operand), widths))
    made = flow.layout(operator, operator.output, summed=True)
    kept = made
    if made.partial > 1 or share.output is not None:
        kept = flow.stored(operator, operator.output, share.output, _wanted_first(flow, operator, made))
        flow.add(TransferPhase.FORWARD, operator, operator.output, flow.moved(made, kept, operator, operator.output))
    flow.kept[operator.output.name] = kept
    flow.kept_gradient[operator.output.name] = flow.stored(operator, operator.output, share.gradient, kept)


def _wanted_first(flow: _Flow, operator: CutOperator, made: Layout) -> Layout:
    """Return the layout in which a tensor computed as partial sums is kept."""
    for consumer in flow.graph.consumers.get(operator.output.name, ()):
        for operand in consumer.inputs:
            if operand.name == operator.output.name:
                wanted = flow.layout(consumer, operand)
                if len(wanted.degrees) == len(made.degrees) and set(wanted.devices) == set(made.devices):
                    return wanted
    return flow.layout(operator, operator.output)


def _backward(flow: _Flow, operator: CutOperator, input_gradients: bool) -> None:
    made = operator.output.name
    wanted, kept = flow.layout(operator, operator.output), flow.kept_gradient[made]
    if made in flow.graph.consumers:
        flow.add(
            TransferPhase.BACKWARD,
            operator,
            operator.output,
            flow.moved(kept, wanted, operator, operator.output),
            f"d {made}",
        )
    if not operator.differentiable:
        return
    for operand in operator.inputs:
        needed = flow.layout(operator, operand)
        if operator.form in ("contraction", "attention"):
            key, kept = (f"again {operand.name}", needed), flow.kept[operand.name]
            if key not in flow.read and needed.parts < kept.parts:
                flow.read.add(key)
                recomputed = flow.moved(kept, needed, operator, operand)
                flow.add(TransferPhase.REGATHER, operator, operand, recomputed)
        if operand.name not in flow.graph.producers and not input_gradients:
            continue
        widths = [dimension.halo for dimension in operand.dimensions]
        flow.add(
            TransferPhase.BACKWARD,
            operator,
            operand,
            halo(needed, operator.shape(operand), widths),
            f"d {operand.name}",
        )
        _gradient(flow, operator, operand)


def _gradient(flow: _Flow, operator: CutOperator, operand: Operand) -> None:
    """Add the transfers that bring one contribution to the gradient of a tensor to its layout."""
    # Nothing is added if another consumer, later in the backward pass, contributes to it in the same layout.
    made = flow.layout(operator, operand, summed=True)
    consumers = flow.graph.consumers[operand.name]
    for other in consumers[: consumers.index(operator)]:
        for same in other.inputs:
            if same.name == operand.name and other.differentiable and flow.layout(other, same, summed=True) == made:
                return
    sent = flow.moved(made, flow.kept_gradient[operand.name], operator, operand)
    flow.add(TransferPhase.BACKWARD, operator, operand, sent, f"d {operand.name}")


def _weights(flow: _Flow, operator: CutOperator) -> None:
    zero = flow.shares[operator.name].zero
    for weight in operator.weights:
        made, used = (flow.layout(operator, weight, summed=True, averaged=True), flow.layout(operator, weight))
        # Elements outside the dimensions (windows, biases) belong to the slices.
        counted = math.prod(operator.shape(weight))
        shape = (*operator.shape(weight), operator.elements(weight) / counted)
        # One more dimension of one part, for the slices of sharding.
        open_made = Layout((*made.degrees, 1), made.devices, made.partial)
        open_used = Layout((*used.degrees, 1), used.devices)
        if zero and made.partial > 1:
            kept = used.sliced(made.partial)
            flow.add(TransferPhase.GRADIENT, operator, weight, infer(open_made, kept, shape), f"d {weight.name}")
            gathered = infer(kept, open_used, shape)
            flow.add(TransferPhase.FETCH if zero == 3 else TransferPhase.UPDATE, operator, weight, gathered)
        else:
            flow.add(TransferPhase.GRADIENT, operator, weight, infer(open_made, open_used, shape), f"d {weight.name}")
