"""Conversion of flat strategies to trees, and of trees to equal flat strategies."""

from dataclasses import replace

from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import (
    Context,
    Recompute,
    Split,
    StageRecompute,
    Strategy,
    chunks_of_stage,
    devices_of_rank,
    layers_of_chunks,
    layers_per_virtual_stage,
)
from forerun.spaces.strategies.stage_choices import in_second_half
from forerun.spaces.trees.laws import TreeStrategies, legal_tree
from forerun.spaces.trees.names import model_layers
from forerun.spaces.trees.resolve import resolve_tree
from forerun.spaces.trees.values import Computation, Memory, Node, Timing


def tree_of(context: Context, strategy: Strategy) -> Node:
    """Return a legal strategy as a tree: its settings at the root, a child for each virtual stage.

    Raises
    ------
    RequestError
        It recomputes layers in groups or keeps shares of tensors on the host, which trees cannot express.
    """
    if strategy.stage_offload is not None:
        raise RequestError("a tree has no word for shares on the host: it keeps tensors of whole layers there")
    if strategy.recompute_group > 1:
        raise RequestError(
            f"a tree has no word for recompute={strategy.recompute_name}: write recompute=full, layer by layer"
        )
    counts = layers_of_chunks(strategy, context.model.layer_count, context.head_layers)
    groups = [tuple(devices_of_rank(strategy, stage)) for stage in range(strategy.pp)]
    rank = _ranks_of_chunks(strategy)
    names = model_layers(context.model)
    stages, done = [], 0
    for number, count in enumerate(counts):
        numbers = list(map(str, range(done, done + count)))
        done += count
        layers = [*names[:1], *numbers] if number == 0 else numbers
        layers = [*layers, names[-1]] if number == len(counts) - 1 else layers
        node = Node(name=f"stage {number}", layers=tuple(_ranges(layers)), devices=groups[rank[number]])
        stages.append(_chosen(strategy, replace(node, place=("children", number)), number, numbers))
    half = strategy.half(False)
    return Node(
        compute=Computation(
            dp=None if strategy.second_tp else half.dp,
            tp=half.tp,
            cp=half.cp,
            ep=half.ep,
            etp=half.etp,
            sp=half.sp,
        ),
        memory=replace(Memory.zero(strategy.zero), shard=strategy.shard or None),
        schedule=Timing(
            order=strategy.schedule,
            microbatches=context.workload.global_batch // (half.dp * half.mbs),
            recompute=strategy.recompute,
        ),
        children=tuple(stages),
    )


def _ranks_of_chunks(strategy: Strategy) -> dict[int, int]:
    """Return the pipeline rank of every virtual stage (DualPipe: that of its first copy)."""
    ranks: dict[int, int] = {}
    for stage in range(strategy.pp):
        for chunk in chunks_of_stage(strategy.pp, strategy.vpp, strategy.schedule, stage):
            ranks.setdefault(chunk, stage)
    return {chunk: chunk for chunk in ranks} if len(ranks) == strategy.pp else ranks


def _chosen(strategy: Strategy, node: Node, stage: int, layers: list[str]) -> Node:
    """Return a stage's node with its own choices."""
    if strategy.second_tp is not None and in_second_half(stage, strategy.pp):
        node = replace(node, compute=Computation(tp=strategy.second_tp))
    if strategy.recompute_first:
        entry = StageRecompute(strategy.recompute, strategy.recompute_first)
    elif strategy.stage_recompute is not None:
        entry = strategy.stage_recompute[stage]
    else:
        return node
    if entry.layers is None or entry.layers >= len(layers):
        return replace(node, schedule=Timing(recompute=entry.kind))
    if not entry.layers:
        return replace(node, schedule=Timing(recompute=Recompute.NONE))
    child = Node(
        name="recomputed",
        layers=tuple(_ranges(layers[: entry.layers])),
        schedule=Timing(recompute=entry.kind),
        place=(*node.place, "children", 0),
    )
    return replace(node, schedule=Timing(recompute=Recompute.NONE), children=(child,))


def _ranges(layers: list[str]) -> list[str]:
    """Return layer names with runs of numbers as ranges."""
    numbers = [int(layer) for layer in layers if layer.isdigit()]
    if len(numbers) < 2:
        return layers
    before = [layer for layer in layers[:1] if not layer.isdigit()]
    after = [layer for layer in layers[-1:] if not layer.isdigit()]
    return [*before, f"{numbers[0]}-{numbers[-1]}", *after]


def flat_of(context: Context, strategies: TreeStrategies) -> Strategy | None:
    """Return the flat strategy equal to a legal tree, or None.

    None is for trees with choices for single layers or stages, tensors on the host, limits on in-flight microbatches,
    or an assignment of layers or devices that no rule gives.
    """
    tree, first = strategies.tree, strategies.first
    if any(one != first for row in strategies.of_leaf for one in row) or tree.in_flight:
        return None
    if any(leaf.host for leaf in tree.leaves):
        return None
    counts = tuple(sum(leaf.layer.isdigit() for leaf in stage.leaves) for stage in tree.stages)
    layers = context.model.layer_count
    candidates = [replace(first, split=split) for split in Split if _deals(split, layers, counts, context)]
    if first.vpp == 1:
        candidates.append(replace(first, layers_per_stage=counts))
    for candidate in candidates:
        resolved = resolve_tree(tree_of(context, candidate), model_layers(context.model))
        if (
            resolved.groups == tree.groups
            and resolved.rank_of_stage == tree.rank_of_stage
            and legal_tree(context, resolved).first == first
        ):
            return candidate
    return None


def _deals(split: Split, layers: int, counts: tuple[int, ...], context: Context) -> bool:
    """Check whether a rule assigns the layers in this way."""
    if (split == Split.EVEN and layers % len(counts)) or (split == Split.LIGHT_MTP and not context.model.mtp_layers):
        return False
    return layers_per_virtual_stage(layers, len(counts), split, context.head_layers) == counts
