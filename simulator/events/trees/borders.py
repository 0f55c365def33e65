"""What passes between layers that are cut differently: on the same devices, and from stage to stage."""

from itertools import pairwise

import numpy as np

from forerun.simulator.hops import HopEnd, one_hop_s
from forerun.simulator.layouts import Layout, Transfer, infer, transfer_time_s
from forerun.simulator.shard import activation_bytes
from forerun.spaces.strategies import Context, Placement, Strategy
from forerun.spaces.trees import TreeStrategies


def activation_layout(strategy: Strategy, devices: tuple[int, ...]) -> Layout:
    """Return how the activations [sequences, tokens, hidden] between two layers lie on the devices of a stage."""
    grid = np.array(devices, dtype=np.int64).reshape(strategy.dp, strategy.cp, strategy.tp)
    if strategy.sp:
        return Layout((strategy.dp, strategy.cp * strategy.tp, 1), tuple(grid.reshape(-1).tolist()))
    return Layout((strategy.dp, strategy.cp, 1), tuple(grid.reshape(-1).tolist()))


def moved(
    context: Context, first: Strategy, second: Strategy, before: tuple[int, ...], behind: tuple[int, ...]
) -> tuple[tuple[Transfer, ...], tuple[Transfer, ...]]:
    """Return the transfers of one microbatch's activations from layers of one configuration to those of another, and of
    their gradients back."""
    shape = (first.mbs * first.dp, context.workload.seq_len, context.model.hidden)
    here, there = activation_layout(first, before), activation_layout(second, behind)
    return infer(here, there, shape), infer(there, here, shape)


def seconds_of(context: Context, transfers: tuple[Transfer, ...]) -> float:
    """Return the seconds of transfers of activations, one after the other, with the launch of each."""
    width = activation_bytes(context.workload.precision)
    launch_s = context.framework.collective_launch_s
    return sum(transfer_time_s(context.cluster, transfer, width) + launch_s for transfer in transfers)


def inner_borders(context: Context, strategies: TreeStrategies) -> list[tuple[float, float]]:
    """Return for every virtual stage the seconds that activations take to change their layout inside it, and gradients
    on their way back."""
    totals = []
    for stage, row in zip(strategies.tree.stages, strategies.of_leaf, strict=True):
        there = back = 0.0
        for first, second in pairwise(row):
            if _cut(first) != _cut(second):
                ahead, behind = moved(context, first, second, stage.devices, stage.devices)
                there, back = there + seconds_of(context, ahead), back + seconds_of(context, behind)
        totals.append((there, back))
    return totals


def stage_hops(context: Context, strategies: TreeStrategies) -> tuple[tuple[float, float], ...]:
    """Return the seconds from every virtual stage to the next, and back.

    Stages of equal size go by the rule of flat strategies; where sizes or context parallelism differ, the parts that
    meet are sent point to point.
    """
    stages, found = strategies.tree.stages, []
    ends = _ends(strategies)
    for number in range(len(stages) - 1):
        sender, receiver = ends[number][1], ends[number + 1][0]
        before, behind = stages[number].devices, stages[number + 1].devices
        if sender.cp == receiver.cp and len(before) == len(behind):
            found.append((_hop_s(context, sender, receiver), _hop_s(context, receiver, sender)))
            continue
        ahead, back = moved(context, sender, receiver, before, behind)
        fixed_s = context.framework.pipeline_hop_s
        found.append((seconds_of(context, ahead) + fixed_s, seconds_of(context, back) + fixed_s))
    return tuple(found)


def _hop_s(context: Context, sender: Strategy, receiver: Strategy) -> float:
    one, other = (
        HopEnd(**{name: np.array([float(getattr(end, name))]) for name in ("tp", "dp", "mbs", "sp")})
        for end in (sender, receiver)
    )
    near = np.array([float(sender.placement == Placement.TP_CP_EP_PP_DP)])
    return float(one_hop_s(context, one, other, np.array([float(sender.cp)]), near)[0])


def borders_between(context: Context, strategies: TreeStrategies) -> list[dict[str, object]]:
    """Return the transfers of one microbatch's activations wherever two layers that follow each other are cut
    differently or stand on different devices, as plain data; ``bytes`` of all groups together."""
    width, found = activation_bytes(context.workload.precision), []
    rows = [
        (leaf.layer, strategy, stage.devices)
        for stage, row in zip(strategies.tree.stages, strategies.of_leaf, strict=True)
        for leaf, strategy in zip(stage.leaves, row, strict=True)
    ]
    for (before, first, here), (behind, second, there) in pairwise(rows):
        if here == there and _cut(first) == _cut(second):
            continue
        for direction, transfers in zip(
            ("forward", "backward"), moved(context, first, second, here, there), strict=True
        ):
            found += [
                {
                    "between": [before, behind],
                    "direction": direction,
                    "kind": transfer.kind,
                    "groups": len(transfer.groups),
                    "members": len(transfer.groups[0]),
                    "bytes": transfer.total * width,
                }
                for transfer in transfers
            ]
    return found


def _ends(strategies: TreeStrategies) -> list[tuple[Strategy, Strategy]]:
    """Return the configurations of the first and the last layer of every virtual stage; of one without layers those of
    the layer before it."""
    last = strategies.first
    ends = []
    for row in strategies.of_leaf:
        ends.append((row[0], row[-1]) if row else (last, last))
        last = ends[-1][1]
    return ends


def _cut(strategy: Strategy) -> tuple[int, ...]:
    return (strategy.dp, strategy.cp, strategy.tp, int(strategy.sp))
