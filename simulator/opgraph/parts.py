"""Costs of one part of every operator, by the cost rules of operator graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.simulator.layouts import Need, Transfer, TransferPhase, transfer_time_s
from forerun.simulator.opgraph.compute import Local
from forerun.simulator.opgraph.context import GraphContext, in_order, paced
from forerun.simulator.opgraph.footprint import footprint
from forerun.simulator.opgraph.split_cuts import degrees_by_axis
from forerun.simulator.opgraph.transfers import all_reduce_s
from forerun.spaces.operators import Cut, CutOperator, OperatorGraph
from forerun.spaces.opgraph import Kind

_GRID = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}
_MATRIX = frozenset({"conv", "conv_transpose", "linear"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCost:
    """Cost of one device's part of an operator on one microbatch.

    Seconds, bytes kept for the backward pass, and bytes of the gradients that its backward pass reads and writes.
    """

    forward_s: float
    input_s: float
    weight_s: float
    kept_bytes: float
    working_bytes: float


def part_costs(
    context: GraphContext,
    graph: OperatorGraph,
    cuts: Mapping[str, Sequence[Cut]],
    elsewhere: frozenset[str] = frozenset(),
    stored: Mapping[str, Sequence[Cut]] | None = None,
) -> Mapping[str, PartCost]:
    """Return the cost of one part of every operator of a model's graph; equal cases are costed once.

    ``elsewhere``: operators without a cost, on other devices; ``stored``: cuts of stored outputs that differ from their
    cuts when computed.
    """
    degrees = {name: degrees_by_axis(operator_cuts) for name, operator_cuts in cuts.items()}
    batch = {operator.name: operator.axis("batch").size for operator in graph.operators}
    cases: dict[tuple[float, ...], int] = {}
    case_of: dict[str, int] = {}
    for layer in context.model.operators:
        operator_cuts = degrees[layer.name]
        grid = [operator_cuts.get(axis, 1) for axis in _GRID.get(len(layer.output) - 1, ())]
        key = (batch[layer.name] / operator_cuts.get("batch", 1), *grid, *(1,) * (3 - len(grid)))
        key = (
            (*key, operator_cuts.get("channels", 1), operator_cuts.get("in_channels", 1))
            if layer.kind.value in _MATRIX
            else (*key, 1, 1)
        )
        case_of[layer.name] = cases.setdefault(tuple(map(float, key)), len(cases))
    columns = np.array(list(cases))
    local = Local(batch_K=columns[:, 0], grid_KA=columns[:, 1:4], filters_K=columns[:, 4], channels_K=columns[:, 5])
    times, kinds = context.times(local), context.layers.kind_of_L
    present = {name: operator_cuts for name, operator_cuts in degrees.items() if name not in elsewhere}
    holds = footprint(
        context.model, present, {name: degrees_by_axis(operator_cuts) for name, operator_cuts in (stored or {}).items()}
    )
    costs_of = {}
    for number, layer in enumerate(context.model.operators):
        if layer.name in elsewhere:
            costs_of[layer.name] = PartCost(forward_s=0.0, input_s=0.0, weight_s=0.0, kept_bytes=0.0, working_bytes=0.0)
            continue
        operator_cuts, case, kind = degrees[layer.name], case_of[layer.name], int(kinds[number])
        # Passes over memory shrink with the channels of their part.
        share = 1.0 if layer.kind.value in _MATRIX else 1.0 / operator_cuts.get("channels", 1)
        seconds = [float(table[case, kind]) * share for table in (times.forward_KU, times.input_KU, times.weight_KU)]
        forward_s, input_s, weight_s = seconds
        size = batch[layer.name] * context.width
        costs_of[layer.name] = PartCost(
            forward_s=forward_s,
            input_s=input_s,
            weight_s=weight_s,
            kept_bytes=size * float(holds.kept_L[number]),
            working_bytes=size * float(holds.working_L[number]),
        )
    return costs_of


def at_host_speed(
    context: GraphContext,
    stages: Sequence[Sequence[CutOperator]],
    costs: Mapping[str, PartCost],
    needs: Sequence[Need],
) -> Mapping[str, PartCost]:
    """Return the costs with waits for the host.

    The host issues the operators of a device (one of ``stages``) and its transfers (``needs``), and joins or cuts the
    pieces of gathered tensors.
    """
    costs_of, profile = dict(costs), context.profile
    for operators in stages:
        names = {operator.name for operator in operators}
        calls = [
            transfer
            for need in needs
            if need.operator in names and need.phase in (TransferPhase.FORWARD, TransferPhase.BACKWARD)
            for transfer in need.transfers
            if transfer.kind != "point_to_point"
        ]
        issued = sum(operator.kind != Kind.VIEW.value for operator in operators)
        launches = context.directions * issued + len(calls)
        # Tensors joined in the forward pass are cut in the backward pass.
        joined = [need for need in needs if need.operator in names and need.phase == TransferPhase.FORWARD]
        gathered = [t for need in joined for t in need.transfers if t.kind == "all_gather"]
        pieces = context.directions * sum(len(transfer.groups[0]) for transfer in gathered)
        host_s = launches * profile.operator_host_s + pieces * profile.piece_host_s
        local = [costs[operator.name] for operator in operators]
        forward, backward = (
            np.array([seconds])
            for seconds in ([cost.forward_s for cost in local], [cost.input_s + cost.weight_s for cost in local])
        )
        launched = np.array([[float(operator.kind != Kind.VIEW.value) for operator in operators]])
        if context.inference:
            forward_s, backward_s = in_order(forward, launched, np.array([host_s])), backward
        else:
            forward_s, backward_s = paced(forward, backward, launched, np.array([host_s]))
        waits = zip((forward_s - forward)[0].tolist(), (backward_s - backward)[0].tolist(), strict=True)
        for operator, cost, (before_s, behind_s) in zip(operators, local, waits, strict=True):
            # An operator on several devices waits for the last of their hosts.
            known = costs_of[operator.name]
            costs_of[operator.name] = replace(
                cost,
                forward_s=max(known.forward_s, cost.forward_s + before_s),
                input_s=max(known.input_s, cost.input_s + behind_s),
            )
    return costs_of


def activation_s(context: GraphContext, transfer: Transfer, element_bytes: float) -> float:
    """Return the seconds of a transfer of activations; halos pass through host memory in frameworks that stage them."""
    staged = context.profile.staged_bytes_per_s
    if transfer.kind == "halo" and staged is not None:
        sent: dict[int, float] = {}
        for (source, _), elements in zip(transfer.groups, transfer.elements, strict=True):
            sent[source] = sent.get(source, 0.0) + elements
        return max(sent.values()) * 2 * element_bytes / staged
    if transfer.kind == "all_reduce":
        return all_reduce_s(context, transfer, element_bytes, context.profile.all_reduce_share)
    return transfer_time_s(context.cluster, transfer, element_bytes)
