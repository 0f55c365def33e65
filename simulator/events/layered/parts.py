"""What one part of every operator costs, by the rules of the layer-by-layer core."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.simulator.costs.collectives import collective_time_s
from forerun.simulator.layered import LayeredContext
from forerun.simulator.layered.compute import Local
from forerun.simulator.layered.memory import IN_PLACE
from forerun.simulator.layouts import Transfer, transfer_time_s
from forerun.simulator.layouts.price import stride_of
from forerun.spaces.operators import Cut, OperatorGraph

_GRID = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}
_MATRIX = frozenset({"conv", "conv_transpose", "linear"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCost:
    """Seconds of one device for its part of an operator on one microbatch, and bytes that it keeps of its output."""

    forward_s: float
    input_s: float
    weight_s: float
    kept_bytes: float


def part_costs(
    context: LayeredContext, graph: OperatorGraph, cuts: Mapping[str, Sequence[Cut]]
) -> Mapping[str, PartCost]:
    """Return the cost of a part of every operator of a model's graph; equal cases are costed once.

    Passes that are shorter than their launch take as long as that.
    """
    degrees = {name: _by_axis(own) for name, own in cuts.items()}
    batch = {operator.name: operator.axis("batch").size for operator in graph.operators}
    cases: dict[tuple[float, ...], int] = {}
    case_of: dict[str, int] = {}
    for number, layer in enumerate(context.model.operators):
        own = degrees[layer.name]
        grid = [own.get(axis, 1) for axis in _GRID.get(len(layer.output) - 1, ())]
        key = (batch[layer.name] / own.get("batch", 1), *grid, *(1,) * (3 - len(grid)))
        key = (*key, own.get("channels", 1), own.get("in_channels", 1)) if layer.kind.value in _MATRIX else (*key, 1, 1)
        case_of[layer.name] = cases.setdefault(tuple(map(float, key)), len(cases))
        assert number < len(graph.operators)
    columns = np.array(list(cases))
    local = Local(batch_K=columns[:, 0], grid_KA=columns[:, 1:4], filters_K=columns[:, 4], channels_K=columns[:, 5])
    times, kinds = context.times(local), context.layers.kind_of_L
    found = {}
    for number, layer in enumerate(context.model.operators):
        own, case, kind = degrees[layer.name], case_of[layer.name], int(kinds[number])
        # Passes over memory shrink with the channels that they pass over.
        share = 1.0 if layer.kind.value in _MATRIX else 1.0 / own.get("channels", 1)
        seconds = [float(table[case, kind]) * share for table in (times.forward_KU, times.input_KU, times.weight_KU)]
        forward_s, input_s, weight_s = (_launched(context, value) for value in seconds)
        parts = math.prod(degree for axis, degree in own.items() if axis in ("batch", "channels", *_GRID[3]))
        kept = 0.0 if layer.kind in IN_PLACE else batch[layer.name] * layer.output_elements * context.width / parts
        found[layer.name] = PartCost(forward_s=forward_s, input_s=input_s, weight_s=weight_s, kept_bytes=kept)
    return found


def _by_axis(cuts: Sequence[Cut]) -> dict[str, int]:
    degrees: dict[str, int] = {}
    for cut in cuts:
        if cut.axis is not None:
            degrees[cut.axis] = degrees.get(cut.axis, 1) * cut.degree
    return degrees


def _launched(context: LayeredContext, seconds: float) -> float:
    return max(seconds, context.profile.operator_host_s) if seconds else 0.0


def activation_seconds(context: LayeredContext, transfers: Sequence[Transfer], element_bytes: float | None) -> float:
    """Return the seconds of transfers of activations, one after the other; halos go through the host's memory where
    the framework copies them there."""
    width = context.width if element_bytes is None else element_bytes
    staged, total = context.profile.staged_bytes_per_s, 0.0
    for transfer in transfers:
        if transfer.kind == "halo" and staged is not None:
            total += max(transfer.elements) * 2 * width / staged
        else:
            total += transfer_time_s(context.cluster, transfer, width)
    return total


def gradient_seconds(context: LayeredContext, transfer: Transfer, element_bytes: float) -> float:
    """Return the seconds of one transfer of gradients or weights; of all-reduces between nodes the framework reaches a
    share of the rate."""
    group = transfer.groups[0]
    if transfer.kind != "all_reduce":
        return transfer_time_s(context.cluster, transfer, element_bytes)
    ranks, stride = len(group), stride_of(group)
    size = max(transfer.elements) * element_bytes
    seconds = float(collective_time_s(context.cluster, "all_reduce", size, ranks, stride))
    away = ranks * stride > context.cluster.devices_per_node
    return seconds / context.profile.all_reduce_share if away else seconds
