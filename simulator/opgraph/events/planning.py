"""Construction of a step's plan from a strategy tree: cuts, devices, costs and communication of every operator."""

from collections.abc import Mapping

from forerun.simulator.layouts import Share, TransferPhase, needs_of
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.dealing import dealt
from forerun.simulator.opgraph.events.meshes import places_of
from forerun.simulator.opgraph.events.plan import GraphPlan
from forerun.simulator.opgraph.parts import at_host_speed, part_costs
from forerun.spaces.errors import RequestError
from forerun.spaces.operators import CutOperator
from forerun.spaces.opgraph.axes import operator_graph
from forerun.spaces.strategies import Recompute
from forerun.spaces.trees.cuts import devices_of, layout_cuts, legal_cuts
from forerun.spaces.trees.names import without_blocks
from forerun.spaces.trees.resolve import Leaf, Stage, resolve_tree
from forerun.spaces.trees.values import KeyPath, Node, TreeError

MOST_DEVICES = 4096
"""Limit of devices: layouts list every device of every tensor, in time proportional to their number."""


def graph_plan(context: GraphContext, root: Node, global_batch: int) -> GraphPlan:
    """Return the plan of a step of ``global_batch`` samples under a tree.

    Raises:
        TreeError: the tree is invalid; the error has the path of the node.
        RequestError: a cost rule does not know a precision or link.
    """
    names = [operator.name for operator in context.model.operators]
    tree = resolve_tree(without_blocks(root, context.model.blocks), names, modules=())
    if global_batch % tree.microbatches:
        raise TreeError(
            ("schedule", "microbatches"),
            f"global batch {global_batch} is not divisible by {tree.microbatches} microbatches",
        )
    most = min(context.cluster.max_devices, MOST_DEVICES)
    if tree.device_count > most:
        raise TreeError((), f"a tree of operators has at most {most} devices here, but this one {tree.device_count}")
    graph = operator_graph(context.model, global_batch // tree.microbatches)
    cuts = legal_cuts(graph, tree)
    by_name = {operator.name: operator for operator in graph.operators}
    rank_of, shares, stages, recomputed = dict[str, int](), dict[str, Share](), [], dict[str, KeyPath]()
    elsewhere: set[str] = set()
    on_host: dict[str, frozenset[str]] = {}
    for number, stage in enumerate(tree.stages):
        stages.append(tuple(by_name[leaf.layer] for leaf in stage.leaves))
        for leaf in stage.leaves:
            rank_of[leaf.layer] = tree.rank_of_stage[number]
            if leaf.shard:
                raise TreeError(
                    (*leaf.place, "memory", "shard"),
                    f"replicas of an operator graph share slices among all of them, but got shard={leaf.shard}; "
                    "drop it",
                )
            stored = {name: layout_cuts(by_name[leaf.layer], parts) for name, parts in leaf.layouts.items()}
            shares[leaf.layer] = Share(
                cuts=cuts[leaf.layer],
                devices=devices_of(leaf, stage),
                zero=leaf.zero,
                output=stored.get("output"),
                gradient=stored.get("output_gradient"),
                input=stored.get("input"),
            )
            if leaf.host:
                on_host[leaf.layer] = leaf.host
            if leaf.recompute == Recompute.FULL and not context.inference:
                recomputed[leaf.layer] = leaf.place
        dealt = dict(_dealt(stage, by_name))
        shares |= {layer: Share(cuts=(), devices=(device,)) for layer, device in dealt.items()}
        elsewhere |= {layer for layer, device in dealt.items() if device != next(iter(dealt.values()))}
    # A distributed layer is on one device, represented by the fullest device of the stage.
    meshes = {leaf.layer: (rank_of[leaf.layer], _mesh(leaf, stage)) for stage in tree.stages for leaf in stage.leaves}
    places = places_of(tree.groups, meshes)
    at_places = [
        [operator for operator in operators if place in places[operator.name]]
        for operators in stages
        for place in sorted({place for operator in operators for place in places[operator.name]})
    ]
    stored = {name: share.output for name, share in shares.items() if share.output is not None}
    try:
        needs = needs_of(graph, shares, input_gradients=False)
        if context.inference:
            needs = tuple(need for need in needs if need.phase in (TransferPhase.FORWARD, TransferPhase.FETCH))
        parts = part_costs(context, graph, cuts, frozenset(elsewhere), stored)
        costs = at_host_speed(context, at_places, parts, needs)
    except RequestError as error:
        raise RequestError(f"{context.model.name}: {error}") from None
    return GraphPlan(
        context=context,
        tree=tree,
        graph=graph,
        operators=tuple(stages),
        rank_of=rank_of,
        shares=shares,
        costs=costs,
        recomputed=recomputed,
        elsewhere=frozenset(elsewhere),
        needs=needs,
        on_host=on_host,
        places=places,
    )


def _mesh(leaf: Leaf, stage: Stage) -> tuple[int, ...]:
    return stage.devices if leaf.compute.deal else devices_of(leaf, stage)


def _dealt(stage: Stage, operators: Mapping[str, CutOperator]) -> list[tuple[str, int]]:
    """Return the device of every distributed layer of a stage, layers of the fullest device first."""
    chosen = [operators[leaf.layer] for leaf in stage.leaves if leaf.compute.deal]
    sizes = [float(operator.weight_elements) for operator in chosen]
    places = dealt(sizes, len(stage.devices))
    load = [sum(size for size, at in zip(sizes, places, strict=True) if at == place) for place in sorted(set(places))]
    fullest = load.index(max(load)) if load else 0
    pairs = [(operator.name, place) for operator, place in zip(chosen, places, strict=True)]
    return [(name, stage.devices[place]) for name, place in sorted(pairs, key=lambda pair: pair[1] != fullest)]
