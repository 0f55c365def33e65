"""A split as a strategy tree: the cuts of every operator, and the devices of every stage."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.split_cuts import split_cuts
from forerun.simulator.opgraph.stages import split_starts
from forerun.spaces.opgraph.axes import operator_graph
from forerun.spaces.opgraph.mixture import Mixture, cuts_of
from forerun.spaces.opgraph.split import Mode, Split
from forerun.spaces.strategies import Schedule
from forerun.spaces.trees.values import Computation, Node, Timing


def tree_of_split(context: GraphContext, split: Split | Mixture, batch: int) -> Node:
    """Return the tree of ``split`` at a global ``batch``: segments are microbatches, and a pipeline runs them as GPipe.

    Replicas are outermost, the parts of one replica are neighbours.
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
    members: dict[tuple[tuple[str, int], ...], list[str]] = {}
    cuts = split_cuts(model, split)
    for name, cut in cuts.items():
        members.setdefault(tuple(cut.items()), []).append(name)
    dealt = [operator.name for operator in model.operators if operator.name not in cuts]
    root = _root(members)
    if not dealt:
        return replace(root, schedule=timing)
    tables = Node(layers=tuple(dealt), compute=Computation(deal=True))
    root = root if members else Node(compute=Computation(cut={"batch": split.replicas}))
    return replace(root, schedule=timing, children=(*root.children, tables))


def _tree_of_mixture(context: GraphContext, mixture: Mixture, batch: int) -> Node:
    members: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for operator in operator_graph(context.model, batch).operators:
        cut: dict[str, int] = {}
        for one in cuts_of(operator, mixture.of(operator.name)):
            name = "replicate" if one.axis is None else one.axis
            cut[name] = cut.get(name, 1) * one.degree
        members.setdefault(tuple(cut.items()), []).append(operator.name)
    return replace(_root(members), schedule=Timing(microbatches=1))


def _root(members: Mapping[tuple[tuple[str, int], ...], Sequence[str]]) -> Node:
    """Return a node for the operators of every cut; the root has the most frequent cut."""
    if not members:
        return Node()
    usual = max(members, key=lambda cut: len(members[cut]))
    children = [
        Node(layers=tuple(names), compute=Computation(cut=dict(cut))) for cut, names in members.items() if cut != usual
    ]
    return Node(compute=Computation(cut=dict(usual)), children=tuple(children))


def _stages(context: GraphContext, split: Split, batch: int) -> tuple[Node, ...]:
    names = [operator.name for operator in context.model.operators]
    starts = split_starts(context, batch / split.replicas / split.segments, split.parts)
    ends = (*starts[1:], len(names))
    return tuple(
        Node(
            name=f"stage{number}",
            layers=tuple(names[begin:end]),
            devices=tuple(replica * split.parts + number for replica in range(split.replicas)),
        )
        for number, (begin, end) in enumerate(zip(starts, ends, strict=True))
    )
