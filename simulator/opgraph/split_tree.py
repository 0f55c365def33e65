"""A split as the strategy tree that it is: what every operator is cut in, and the devices of every stage."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.stages import stage_starts
from forerun.spaces.operators import spatial_axes
from forerun.spaces.opgraph import WEIGHTED, Kind
from forerun.spaces.opgraph import Operator as GraphOperator
from forerun.spaces.opgraph.axes import operator_graph
from forerun.spaces.opgraph.limits import tail_start
from forerun.spaces.opgraph.mixture import Mixture, cuts_of
from forerun.spaces.opgraph.split import Mode, Split
from forerun.spaces.strategies import Schedule
from forerun.spaces.trees.values import Computation, Node, Timing


def tree_of_split(context: GraphContext, split: Split | Mixture, batch: int) -> Node:
    """Return the tree of ``split`` at a global ``batch``: its segments are microbatches, a pipeline runs them as GPipe.

    Replicas are outermost, the parts of one replica stand next to each other.
    """
    if isinstance(split, Mixture):
        return _tree_of_mixture(context, split, batch)
    model = context.model
    timing = Timing(
        order=Schedule.GPIPE if split.mode is Mode.PIPELINE else Schedule.ONE_F_ONE_B, microbatches=split.segments
    )
    if split.mode is Mode.PIPELINE:
        return Node(
            schedule=timing,
            compute=Computation(cut={"batch": split.replicas}),
            children=_stages(context, split, batch),
        )
    own: dict[tuple[tuple[str, int], ...], list[str]] = {}
    dealt = [table.name for table in model.tables] if split.spread else []
    start = tail_start(model, split.grid) if split.mode is Mode.SPATIAL else len(model.operators)
    mixed = model.linear_runs if split.mixed else frozenset()
    for place, operator in enumerate(model.operators):
        if operator.name not in dealt:
            cut = _cut(operator, split, tail=place >= start, mixed=operator.name in mixed)
            own.setdefault(tuple(cut.items()), []).append(operator.name)
    root = _root(own)
    if not dealt:
        return replace(root, schedule=timing)
    tables = Node(layers=tuple(dealt), compute=Computation(deal=True))
    root = root if own else Node(compute=Computation(cut={"batch": split.replicas}))
    return replace(root, schedule=timing, children=(*root.children, tables))


def _tree_of_mixture(context: GraphContext, mixture: Mixture, batch: int) -> Node:
    own: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for operator in operator_graph(context.model, batch).operators:
        cut: dict[str, int] = {}
        for one in cuts_of(operator, mixture.of(operator.name)):
            name = "replicate" if one.axis is None else one.axis
            cut[name] = cut.get(name, 1) * one.degree
        own.setdefault(tuple(cut.items()), []).append(operator.name)
    return replace(_root(own), schedule=Timing(microbatches=1))


def _root(own: Mapping[tuple[tuple[str, int], ...], Sequence[str]]) -> Node:
    """Return a node for the operators of every cut; what most of them do stands at the root."""
    if not own:
        return Node()
    usual = max(own, key=lambda cut: len(own[cut]))
    children = [
        Node(layers=tuple(names), compute=Computation(cut=dict(cut))) for cut, names in own.items() if cut != usual
    ]
    return Node(compute=Computation(cut=dict(usual)), children=tuple(children))


def _cut(operator: GraphOperator, split: Split, *, tail: bool, mixed: bool) -> dict[str, int]:
    """Return the degrees of one operator by axis, outermost first."""
    if mixed:
        whole = operator.kind is Kind.LINEAR and operator.filters < split.replicas
        return {"replicate" if whole else _features(operator): split.replicas}
    cut = {"batch": split.replicas}
    if split.parts == 1:
        return cut
    if split.mode is Mode.SPATIAL:
        # The parts of a picture exchange all gradients with all others, those of the repeated tail too.
        return cut | ({"average": split.parts} if tail else _grid(operator, split.grid))
    return cut | {_product_axis(operator, split): split.parts}


def _features(operator: GraphOperator) -> str:
    """Return the axis that a linear layer makes: of what follows it element by element on tokens the last one."""
    tokens = operator.kind is not Kind.LINEAR and len(operator.output) > 1
    return spatial_axes(len(operator.output) - 1)[-1] if tokens else "channels"


def _grid(operator: GraphOperator, grid: Sequence[int]) -> dict[str, int]:
    names = spatial_axes(len(operator.output) - 1)
    return {name: degree for name, degree in zip(names, grid, strict=False) if degree > 1}


def _product_axis(operator: GraphOperator, split: Split) -> str:
    """Return the axis that filter or channel cuts of a product with a weight; anything else is repeated, and so is what
    has less than a part for everyone: the last layer's filters, the channels of the data."""
    if operator.kind not in WEIGHTED:
        return "replicate"
    if split.mode is Mode.FILTER:
        return "channels" if operator.filters >= split.parts else "replicate"
    if not operator.inputs or operator.channels_in < split.parts:
        return "replicate"
    return "in_channels" if operator.groups == 1 else "channels"


def _stages(context: GraphContext, split: Split, batch: int) -> tuple[Node, ...]:
    names = [operator.name for operator in context.model.operators]
    starts = stage_starts(context, batch / split.replicas / split.segments, split.parts)
    ends = (*starts[1:], len(names))
    return tuple(
        Node(
            name=f"stage{number}",
            layers=tuple(names[begin:end]),
            devices=tuple(replica * split.parts + number for replica in range(split.replicas)),
        )
        for number, (begin, end) in enumerate(zip(starts, ends, strict=True))
    )
