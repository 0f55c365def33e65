"""Transfers between layers, or modules of a layer, with different cuts, on the same devices or between stages.

Activations between layers (the residual stream) have the layout of the layer that reads them. A layer with tp and
without sequence parallelism computes partial sums of the stream. The layer all-reduces these sums over its tensor
ranks, unless every receiving device needs only a part: a reduce-scatter sends the sums to the parts in this case.
Gradients are sent in reverse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from forerun.simulator.assignment.of_tree import assign_tree
from forerun.simulator.assignment.passes import shard_with
from forerun.simulator.assignment.value import Assignment, Placed
from forerun.simulator.layer.communication import tensor_sync
from forerun.simulator.layer.shard import activation_bytes
from forerun.simulator.layer.times import shorter_sums_s
from forerun.simulator.layouts import Layout, Transfer, infer, transfer_time_s
from forerun.simulator.pipeline.p2p import P2pEnd, p2p_between_s, p2p_parts_s
from forerun.simulator.score_table import Floats
from forerun.spaces.models import Layer, MixtureOfExperts
from forerun.spaces.strategies import Context, Placement, Strategy
from forerun.spaces.trees import TreeStrategies


def activation_layout(strategy: Strategy, devices: Sequence[int], *, summed: bool = False) -> Layout:
    """Return the layout of the activations [sequences, tokens, hidden] between two layers on the devices of a stage.

    ``summed``: tensor ranks have partial sums of them.
    """
    dealt = tuple(np.array(devices, dtype=np.int64).tolist())
    if summed:
        return Layout((strategy.dp, strategy.cp, 1), dealt, strategy.tp)
    return Layout((strategy.dp, strategy.cp * (strategy.tp if strategy.sp else 1), 1), dealt)


def moved(
    context: Context, first: Strategy, second: Strategy, before: Sequence[int], behind: Sequence[int]
) -> tuple[tuple[Transfer, ...], tuple[Transfer, ...]]:
    """Return the transfers of one microbatch's activations between two configurations, and of their gradients.

    ``before`` and ``behind``: devices of the first and the second, tensor ranks next to each other.
    """
    shape = (first.mbs * first.dp, context.workload.seq_len, context.model.hidden)
    here, there = activation_layout(first, before), activation_layout(second, behind)
    return infer(here, there, shape), infer(there, here, shape)


def seconds_of(context: Context, transfers: tuple[Transfer, ...]) -> float:
    """Return the seconds of consecutive transfers of activations, including their launches."""
    width = activation_bytes(context.workload.precision)
    launch_s = context.framework.collective_launch_s
    return sum(transfer_time_s(context.cluster, transfer, width) + launch_s for transfer in transfers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """Transfers between two neighbours on the same devices: activations ``ahead``, gradients ``back``.

    ``sums``: transfers that replace the last all-reduce of the first neighbour's forward pass, and of the second
    neighbour's backward pass; () where sums are all-reduced.
    """

    ahead: tuple[Transfer, ...]
    back: tuple[Transfer, ...]
    sums: tuple[tuple[Transfer, ...], tuple[Transfer, ...]]


def border_between(
    context: Context, first: Strategy, second: Strategy, devices: Sequence[int], sums: tuple[bool, bool]
) -> Border:
    """Return the transfers between neighbours of two configurations.

    ``sums``: whether the first ends, and the second starts, with an operator whose outputs (gradients of inputs) are
    partial sums.
    """
    ahead, back = moved(context, first, second, devices, devices)
    shape = (first.mbs * first.dp, context.workload.seq_len, context.model.hidden)
    instead = []
    for maker, taker, transfers, summed in ((first, second, ahead, sums[0]), (second, first, back, sums[1])):
        parts = () if transfers or not summed or maker.sp or maker.tp == 1 else _parts(maker, taker, devices, shape)
        instead.append(parts)
    return Border(ahead=ahead, back=back, sums=(instead[0], instead[1]))


def _parts(maker: Strategy, taker: Strategy, devices: Sequence[int], shape: tuple[int, ...]) -> tuple[Transfer, ...]:
    """Return the transfers of partial sums to their parts; () where they are not a reduce-scatter."""
    wanted = activation_layout(taker, devices)
    found = infer(activation_layout(maker, devices, summed=True), wanted, shape)
    return found if found and found[0].kind == "reduce_scatter" else ()


def ends_in_sums(layer: Layer | None) -> bool:
    """Check whether the last operator of a layer (None: embedding or head) leaves partial sums on tensor ranks."""
    return layer is None or not layer.feeds_forward or _dense(layer)


def begins_with_sums(layer: Layer | None) -> bool:
    """Check whether the gradient of a layer's input is a partial sum."""
    return layer is None or layer.attends or _dense(layer)


def _dense(layer: Layer) -> bool:
    return not isinstance(layer.mlp, MixtureOfExperts) or layer.mlp.shared_hidden > 0


def changes_inside(assignment: Assignment) -> tuple[Floats, Floats]:
    """Return the seconds of layout changes inside every virtual stage, of activations and of gradients, shape C each.

    Savings by partial sums that are sent to parts are subtracted.
    """
    prices, count = _Prices(assignment), len(assignment.layers)
    there, back = np.zeros(count), np.zeros(count)
    for chunk, (row, devices) in enumerate(zip(assignment.layers, assignment.devices, strict=True)):
        if len({_cut(placed.settings) for placed in row}) < 2:
            continue
        saved = [[0.0, 0.0] for _ in row]
        for place, (first, second) in enumerate(pairwise(row)):
            if _cut(first.settings) == _cut(second.settings):
                continue
            border = prices.border(first, second, devices)
            there[chunk] += prices.seconds(border.ahead)
            back[chunk] += prices.seconds(border.back)
            saved[place][0] = prices.shorter(first.settings, border.sums[0])
            saved[place + 1][1] = prices.shorter(second.settings, border.sums[1])
        for placed, (ahead, behind) in zip(row, saved, strict=True):
            if ahead or behind:
                less = prices.saved(placed, (ahead, behind))
                there[chunk], back[chunk] = there[chunk] - less[0], back[chunk] - less[1]
    return there, back


class _Prices:
    """Borders of one assignment and their costs, each computed once."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment, self.context = assignment, assignment.context
        self.borders: dict[tuple[object, ...], Border] = {}
        self.times_s: dict[tuple[Transfer, ...], float] = {}
        self.reduce_s: dict[Strategy, float] = {}
        self.less: dict[tuple[object, ...], tuple[float, float]] = {}

    def border(self, first: Placed, second: Placed, devices: Sequence[int]) -> Border:
        """Return the border of two neighbours."""
        sums = ends_in_sums(self.assignment.layer_of(first)), begins_with_sums(self.assignment.layer_of(second))
        key = (_cut(first.settings), _cut(second.settings), devices, sums)
        if key not in self.borders:
            self.borders[key] = border_between(self.context, first.settings, second.settings, devices, sums)
        return self.borders[key]

    def seconds(self, transfers: tuple[Transfer, ...]) -> float:
        """Return the seconds of transfers."""
        if transfers not in self.times_s:
            self.times_s[transfers] = seconds_of(self.context, transfers)
        return self.times_s[transfers]

    def shorter(self, strategy: Strategy, parts: tuple[Transfer, ...]) -> float:
        """Return the seconds saved by transfers in place of an all-reduce over tensor ranks, 0 for none."""
        if not parts:
            return 0.0
        if strategy not in self.reduce_s:
            whole = tensor_sync(self.context, shard_with(self.context, strategy), self.context.model.hidden)
            self.reduce_s[strategy] = float(whole.reduce_s[0])
        return max(self.reduce_s[strategy] - self.seconds(parts), 0.0)

    def saved(self, placed: Placed, shorter_s: tuple[float, float]) -> tuple[float, float]:
        """Return the seconds of a layer's passes saved by shorter sums: half per direction for embedding and head."""
        layer, settings = self.assignment.layer_of(placed), placed.settings
        if layer is None:
            return (sum(shorter_s) / 2,) * 2
        key = (settings, layer, shorter_s)
        if key not in self.less:
            less = shorter_sums_s(self.context, layer, shard_with(self.context, settings), shorter_s)
            self.less[key] = float(less[0][0]), float(less[1][0])
        return self.less[key]


def p2p_times(assignment: Assignment) -> tuple[tuple[float, float], ...]:
    """Return the seconds from every virtual stage to the next and back; shape C - 1.

    Stages of equal size follow the rule of flat strategies; where sizes or context parallelism differ, intersecting
    parts are sent point to point. A transfer between groups of devices uses the outermost level of both, at the rate of
    the slower one.
    """
    found, ends = [], _outer_settings(assignment)
    on = [assignment.group_of_rank[rank] for rank in assignment.rank_of_chunk]
    known: dict[tuple[int, int, Strategy, Strategy], tuple[float, float]] = {}
    for chunk in range(len(ends) - 1):
        here, there = on[chunk], on[chunk + 1]
        sender, receiver = ends[chunk][1], ends[chunk + 1][0]
        before, behind = assignment.devices[chunk], assignment.devices[chunk + 1]
        context = assignment.contexts[here]
        key = (here, there, sender, receiver)
        if sender.cp != receiver.cp or len(before) != len(behind):
            found.append(transfers_between_s(context, sender, receiver, before, behind, assignment.shape.pp))
            continue
        if key not in known and here == there:
            known[key] = transfers_between_s(context, sender, receiver, before, behind, assignment.shape.pp)
        elif key not in known:
            slower = max(_network_p2p_s(assignment.contexts[group], sender) for group in (here, there))
            known[key] = (slower, slower)
        found.append(known[key])
    return tuple(found)


def transfers_between_s(
    context: Context, sender: Strategy, receiver: Strategy, before: Sequence[int], behind: Sequence[int], pp: int
) -> tuple[float, float]:
    """Return the seconds from one of ``pp`` stages to the next and back, on one group of devices.

    Stages of equal size follow the rule of flat strategies; otherwise intersecting parts are sent point to point.
    ``before`` and ``behind``: devices of sender and receiver.
    """
    if sender.cp == receiver.cp and len(before) == len(behind):
        forward_s, backward_s = transfers_alike_s(context, [sender], [receiver], pp)
        return float(forward_s[0]), float(backward_s[0])
    ahead, back = moved(context, sender, receiver, before, behind)
    fixed_s = context.framework.p2p_fixed_s
    return seconds_of(context, ahead) + fixed_s, seconds_of(context, back) + fixed_s


def transfers_alike_s(
    context: Context, senders: Sequence[Strategy], receivers: Sequence[Strategy], pp: int
) -> tuple[Floats, Floats]:
    """Return the seconds from one of ``pp`` stages to the next and back, of N pairs of stages, shape N each.

    The stages of a pair have equal numbers of devices, placement and cp.
    """
    near = np.array([float(one.placement == Placement.TP_CP_EP_PP_DP) for one in senders])
    cp, stages = np.array([float(one.cp) for one in senders]), np.full(len(senders), float(pp))
    there = p2p_between_s(context, _ends(senders), _ends(receivers), cp, near, stages)
    return there, p2p_between_s(context, _ends(receivers), _ends(senders), cp, near, stages)


def _network_p2p_s(context: Context, settings: Strategy) -> float:
    """Return the seconds of one transfer over the outermost level of a group of devices."""
    levels = context.cluster.levels
    stride = np.array([float(levels[-2].size if len(levels) > 1 else 1)])
    cp = np.array([float(settings.cp)])
    sent, gathered = p2p_parts_s(context, _ends([settings]), _ends([settings]), cp, stride)
    return float(sent[0] + gathered[0]) + context.framework.p2p_fixed_s


def _ends(settings: Sequence[Strategy]) -> P2pEnd:
    return P2pEnd(
        **{name: np.array([float(getattr(one, name)) for one in settings]) for name in ("tp", "dp", "mbs", "sp")}
    )


def borders_between(context: Context, strategies: TreeStrategies) -> list[dict[str, object]]:
    """Return the transfers of activations between layers or modules with different cuts or devices, as plain data.

    Transfers are those of one microbatch. ``bytes``: of all groups together; ``count``: number of equal transfers, of
    which the first is ``between`` the given pair. ``instead_of``: the all-reduce inside a layer that they replace.
    """
    assignment, found = assign_tree(context, strategies), dict[tuple[object, ...], dict[str, object]]()
    context, prices = assignment.context, _Prices(assignment)
    rows = [
        (leaf.name, placed, stage.devices)
        for stage, row in zip(strategies.tree.stages, assignment.layers, strict=True)
        for leaf, placed in zip(stage.leaves, row, strict=False)  # MTP blocks after the head are not leaves
    ]
    for (before, first, here), (behind, second, there) in pairwise(rows):
        if here != there:
            ahead, back = moved(context, first.settings, second.settings, here, there)
            sent = [("forward", ahead, ""), ("backward", back, "")]
        elif _cut(first.settings) != _cut(second.settings):
            border = prices.border(first, second, here)
            sent = [
                ("forward", border.ahead, ""),
                ("forward", border.sums[0], "all_reduce"),
                ("backward", border.back, ""),
                ("backward", border.sums[1], "all_reduce"),
            ]
        else:
            continue
        for direction, transfers, instead_of in sent:
            for transfer in transfers:
                _note(context, found, (before, behind), direction, transfer, instead_of)
    return list(found.values())


def _note(
    context: Context,
    found: dict[tuple[object, ...], dict[str, object]],
    between: tuple[str, str],
    direction: str,
    transfer: Transfer,
    instead_of: str,
) -> None:
    """Add a transfer, or count it with an equal one between layers of the same modules."""
    modules = tuple("" if name.isdigit() else name.partition(".")[2] or name for name in between)
    key = (*modules, direction, transfer, instead_of)
    if key in found:
        found[key]["count"] = int(str(found[key]["count"])) + 1
        return
    entry: dict[str, object] = {
        "between": list(between),
        "direction": direction,
        "kind": transfer.kind,
        "groups": len(transfer.groups),
        "members": len(transfer.groups[0]),
        "bytes": transfer.total * activation_bytes(context.workload.precision),
        "count": 1,
    }
    found[key] = entry | ({"instead_of": instead_of} if instead_of else {})


def _outer_settings(assignment: Assignment) -> list[tuple[Strategy, Strategy]]:
    """Return the settings of every virtual stage's first and last layer; without layers, of the preceding layer."""
    last = assignment.layers[0][0].settings
    ends = []
    for row in assignment.layers:
        ends.append((row[0].settings, row[-1].settings) if row else (last, last))
        last = ends[-1][1]
    return ends


def _cut(strategy: Strategy) -> tuple[int, ...]:
    return (strategy.dp, strategy.cp, strategy.tp, int(strategy.sp))
