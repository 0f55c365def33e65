"""Resolution of a tree to the settings of every layer; nodes with devices become stages.

Settings are given to *units*: a layer's module, or a layer without modules. A layer whose modules are configured by one
node is one leaf; any other layer has a leaf for each module.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from forerun.spaces.models.model import MODULES
from forerun.spaces.strategies import ALL_REPLICAS, Recompute, Schedule
from forerun.spaces.trees.names import ranges_text
from forerun.spaces.trees.units import Unit, own_units, unit_text, units_of, units_text
from forerun.spaces.trees.values import LAYOUTS, Computation, KeyPath, Memory, Node, Timing, TreeError, over


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One layer, or one of its modules, with all its settings."""

    layer: str
    module: str = ""
    """Name of the module; empty for a complete layer."""
    compute: Computation
    zero: int
    """ZeRO stage."""
    shard: int
    """Replicas that share one set of slices (0: all)."""
    host: frozenset[str]
    """Tensors in host memory."""
    recompute: Recompute
    place: KeyPath
    """Keys that lead to the node that configures it."""
    layouts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Parts by axis of its explicit ``LAYOUTS``."""

    @property
    def name(self) -> str:
        """Name in reports, like "3" or "3.mlp"."""
        return unit_text((self.layer, self.module))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Consecutive layers on the same devices: a virtual stage."""

    name: str
    devices: tuple[int, ...]
    leaves: tuple[Leaf, ...]
    in_flight: int | None
    """Limit of its in-flight microbatches; None where the schedule decides."""
    place: KeyPath
    """Keys that lead to its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTree:
    """A tree with all settings resolved."""

    order: Schedule
    microbatches: int
    """Microbatches of a replica and step."""
    stages: tuple[Stage, ...]
    """Virtual stages in model order."""
    groups: tuple[tuple[int, ...], ...]
    """Devices of every pipeline rank, in the order of the model."""
    rank_of_stage: tuple[int, ...]
    """Pipeline rank of every virtual stage."""

    @property
    def leaves(self) -> Iterator[Leaf]:
        """All layers in model order."""
        for stage in self.stages:
            yield from stage.leaves

    @property
    def device_count(self) -> int:
        """Number of devices of the tree."""
        return sum(map(len, self.groups))

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Limits of in-flight microbatches of every pipeline rank; () where the schedule decides."""
        limits = [stage.in_flight for stage in self.stages]
        return tuple(limit for limit in limits if limit is not None)


_Placed = dict[Unit, tuple[Leaf, Node | None]]
"""Leaf of every unit, without its name, and the node of its stage."""

_DEFAULT_COMPUTE = Computation(tp=1, cp=1, ep=1, etp=1, sp=False)
_DEFAULT_MEMORY = over(Memory(shard=ALL_REPLICAS, host=frozenset()), Memory.zero(0))
_DEFAULT_TIMING = Timing(order=Schedule.ONE_F_ONE_B, recompute=Recompute.NONE)


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings in force at a node; ``stage``: the node with the devices, None above all of them."""

    compute: Computation
    memory: Memory
    schedule: Timing
    stage: Node | None = None


def resolve_tree(root: Node, layers: Sequence[str], modules: Sequence[str] = MODULES) -> ResolvedTree:
    """Resolve the settings of each of a model's ``layers`` (names in execution order).

    Layers whose names are numbers consist of ``modules``.

    Raises
    ------
    TreeError
        The tree names an unknown layer or names one twice, leaves one without a stage, or its stages contradict its
        schedule; the error has the path of the node.
    """
    units = units_of(layers, modules)
    named = set(own_units(root, units))
    left = [unit for unit in units if unit not in named]
    if left:
        key = "layers" if root.modules is None else "modules"
        raise TreeError(
            (*root.place, key), f"the root is for all layers, but leaves out {units_text(left)}; drop its {key}"
        )
    placed: _Placed = {}
    marked: list[tuple[Node, tuple[Unit, ...]]] = []
    start = _Settings(_DEFAULT_COMPUTE, _DEFAULT_MEMORY, _DEFAULT_TIMING)
    _walk(root, start, units, placed, marked)
    timing = over(root.schedule, _DEFAULT_TIMING)
    if timing.microbatches is None:
        raise TreeError((*root.place, "schedule"), "the root names the microbatches of a step, like microbatches: 8")
    stages = _stages(root, placed, units, marked)
    groups = tuple(dict.fromkeys(stage.devices for stage in stages))
    _check_groups(stages, groups)
    rank_of_stage = tuple(groups.index(stage.devices) for stage in stages)
    assert timing.order is not None
    return ResolvedTree(
        order=timing.order,
        microbatches=timing.microbatches,
        stages=_limited(root, stages, rank_of_stage, len(groups)),
        groups=groups,
        rank_of_stage=rank_of_stage,
    )


def _walk(
    node: Node,
    above: _Settings,
    allowed: tuple[Unit, ...],
    placed: _Placed,
    marked: list[tuple[Node, tuple[Unit, ...]]],
) -> tuple[Unit, ...]:
    """Place the units of a node and return them; ``allowed``: units of its parent; ``marked``: stages so far."""
    units = own_units(node, allowed)
    stage = above.stage
    if node.devices:
        if stage is not None:
            raise TreeError((*node.place, "devices"), f"stages do not nest, but {_called(stage)} has devices too")
        if node.modules is not None:
            raise TreeError(
                (*node.place, "devices"), "a stage has whole layers; name devices at a node above its modules"
            )
        stage = node
        marked.append((node, units))
    if node.place and (node.schedule.order is not None or node.schedule.microbatches is not None):
        key = "order" if node.schedule.order is not None else "microbatches"
        raise TreeError((*node.place, "schedule", key), f"{key} applies to the whole tree; name it at the root")
    here = _Settings(
        over(node.compute, above.compute),
        over(node.memory, above.memory),
        over(node.schedule, above.schedule),
        stage,
    )
    here.memory.stage(node.place)  # refused at the node that sets it, not at the leaves
    taken: dict[Unit, Node] = {}
    for child in node.children:
        for unit in _walk(child, here, units, placed, marked):
            if unit in taken:
                key = "modules" if child.layers is None and child.modules is not None else "layers"
                what = f"{unit[1]} of layer {unit[0]}" if child.modules is not None else f"layer {unit[0]}"
                raise TreeError((*child.place, key), f"{what} belongs to {_called(taken[unit])} already")
            taken[unit] = child
    if len(taken) < len(units):
        leaf = _leaf(node, here)
        placed.update((unit, (leaf, stage)) for unit in units if unit not in taken)
    return units


def _leaf(node: Node, here: _Settings) -> Leaf:
    """Return the settings of the units that a node configures, without their names."""
    host, recompute, shard = here.memory.host, here.schedule.recompute, here.memory.shard
    assert host is not None and recompute is not None and shard is not None
    return Leaf(
        layer="",
        compute=here.compute,
        zero=here.memory.stage(node.place),
        shard=shard,
        host=host,
        recompute=recompute,
        place=node.place,
        layouts={name: parts for name in LAYOUTS if (parts := getattr(here.memory, name)) is not None},
    )


def _called(node: Node) -> str:
    where = ".".join(map(str, node.place)) or "the root"
    return f"{where} ({node.name})" if node.name else where


def _leaves(placed: _Placed, units: Sequence[Unit]) -> tuple[Leaf, ...]:
    """Return the leaves of some units: one for a layer whose modules one node configures, else one per module."""
    leaves: list[Leaf] = []
    for layer, group in groupby(units, key=lambda unit: unit[0]):
        nodes = [(module, placed[layer, module][0]) for _, module in group]
        if len({leaf.place for _, leaf in nodes}) == 1:
            nodes = [("", nodes[0][1])]
        leaves += (replace(leaf, layer=layer, module=module) for module, leaf in nodes)
    return tuple(leaves)


def _stages(
    root: Node,
    placed: _Placed,
    units: Sequence[Unit],
    marked: Sequence[tuple[Node, tuple[Unit, ...]]],
) -> tuple[Stage, ...]:
    """Return the virtual stages in model order."""
    if not marked:
        leaves = _leaves(placed, units)
        devices = tuple(range(_needed(root, _most_settled(leaves))))
        return (Stage(name=root.name, devices=devices, leaves=leaves, in_flight=None, place=root.place),)
    open_units = [unit for unit in units if placed[unit][1] is None]
    if open_units:
        raise TreeError((*root.place, "children"), f"every layer needs a stage, but none has {units_text(open_units)}")
    order = iter(units)
    for node, members in marked:
        for unit in members:
            due = next(order)
            if unit != due:
                raise TreeError(
                    (*node.place, "layers"),
                    f"stages are in model order, each with consecutive layers, but layer {unit[0]} of "
                    f"{_called(node)} is where {due[0]} is due",
                )
    return tuple(
        Stage(
            name=node.name or f"stage {number}",
            devices=node.devices,
            leaves=_leaves(placed, members),
            in_flight=(node.schedule.in_flight or (None,))[0] if node is not root else None,
            place=node.place,
        )
        for number, (node, members) in enumerate(marked)
    )


def _most_settled(leaves: Sequence[Leaf]) -> Computation:
    """Return the settings of the first leaf with an explicit number of parts, else of the first leaf."""
    return next((leaf.compute for leaf in leaves if leaf.compute.cut is not None), leaves[0].compute)


def _needed(root: Node, compute: Computation) -> int:
    """Return the number of devices of a tree without devices, from the settings of its root or else of a layer."""
    if root.compute.cut is not None or root.compute.dp is not None:
        compute = root.compute
    if compute.cut is not None:
        return math.prod(compute.cut.values())
    if compute.dp is None:
        raise TreeError((*root.place, "compute"), "name dp, or the devices of the root or of stages below it")
    return compute.dp * (compute.tp or 1) * (compute.cp or 1)


def _check_groups(stages: Sequence[Stage], groups: Sequence[tuple[int, ...]]) -> None:
    number = {group: place for place, group in enumerate(groups)}
    owner: dict[int, int] = {}
    for stage in stages:
        group_number = number[stage.devices]
        for device in stage.devices:
            if owner.setdefault(device, group_number) != group_number:
                raise TreeError(
                    (*stage.place, "devices"),
                    f"stages share all devices or none, but device {device} is one of "
                    f"{ranges_text(groups[owner[device]])} and of {ranges_text(stage.devices)}",
                )
    for first, second in pairwise(groups):
        if len(stages) % len(groups):
            raise TreeError(
                (),
                f"{len(stages)} virtual stages are not divided evenly among {len(groups)} pipeline ranks, such as "
                f"{ranges_text(first)} and {ranges_text(second)}",
            )


def _limited(root: Node, stages: tuple[Stage, ...], rank_of_stage: tuple[int, ...], groups: int) -> tuple[Stage, ...]:
    """Return the stages with limits on in-flight microbatches, which all or none of them have."""
    limits = [stage.in_flight for stage in stages]
    at_root = root.schedule.in_flight
    if at_root is not None:
        if len(at_root) not in (1, groups):
            raise TreeError(
                (*root.place, "schedule", "in_flight"),
                f"in_flight is one number or one for each of {groups} pipeline ranks, but got {len(at_root)}",
            )
        given = at_root * groups if len(at_root) == 1 else at_root
        limits = [given[group] if limit is None else limit for group, limit in zip(rank_of_stage, limits, strict=True)]
    if any(limit is None for limit in limits):
        named = next((stage for stage, limit in zip(stages, limits, strict=True) if limit is not None), None)
        if named is not None:
            raise TreeError(
                (*named.place, "schedule", "in_flight"),
                "in_flight limits all stages or none; name it at the root for the others",
            )
        return stages
    return tuple(
        Stage(name=s.name, devices=s.devices, leaves=s.leaves, in_flight=limit, place=s.place)
        for s, limit in zip(stages, limits, strict=True)
    )
