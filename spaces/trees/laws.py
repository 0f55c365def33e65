"""Laws of a tree on a transformer: every leaf is checked as the flat strategy with its settings everywhere.

A leaf that is a module satisfies only its own laws: laws of heads for attention, laws of experts for the MLP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from forerun.spaces.divisors import use_one_of
from forerun.spaces.models import MixtureOfExperts
from forerun.spaces.schedules.catalogue import schedule_of
from forerun.spaces.strategies import (
    ALL_REPLICAS,
    CUSTOM_SPLIT,
    SPELLING,
    Context,
    Placement,
    Recompute,
    Strategy,
    violations,
)
from forerun.spaces.strategies.table import axis_values
from forerun.spaces.trees.names import layer_at, ranges_text
from forerun.spaces.trees.resolve import Leaf, ResolvedTree, Stage
from forerun.spaces.trees.values import TreeError

_KEY_OF: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "framework degree": ("compute",),
        "heads": ("compute", "tp"),
        "kv heads": ("compute", "tp"),
        "sequence / cp": ("compute", "cp"),
        "experts": ("compute", "ep"),
        "expert folding": ("compute", "ep"),
        "expert tensor": ("compute", "etp"),
        "schedule": ("schedule", "order"),
        "framework schedule": ("schedule", "order"),
        "global batch": ("schedule", "microbatches"),
        "microbatches": ("schedule", "microbatches"),
        "framework zero": ("memory",),
        "shard": ("memory", "shard"),
        "framework shard": ("memory", "shard"),
        "framework sequence parallel": ("compute", "sp"),
        "sequence / sp": ("compute", "sp"),
        "framework recompute": ("schedule", "recompute"),
        "framework placement": ("devices",),
    }
)
"""Keys of a node for each law of flat strategies."""

_HEADS, _EXPERTS = ("heads", "kv heads"), ("experts", "expert folding", "expert tensor")
_OTHERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"attention": _EXPERTS, "mlp": _HEADS, "embedding": _HEADS, "head": _HEADS}
)
"""Laws that do not apply to a module, or to an end of the model."""

_DEGREES = ("dp", "tp", "cp", "ep", "etp", "sp")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeStrategies:
    """A tree whose leaves are legal."""

    tree: ResolvedTree
    of_leaf: tuple[tuple[Strategy, ...], ...]
    """Flat strategies with the settings of the leaves, by virtual stage. Equally configured modules of one layer are
    one leaf."""

    @property
    def first(self) -> Strategy:
        """The strategy of the first leaf."""
        return self.of_leaf[0][0]

    @property
    def per_module(self) -> bool:
        """Whether modules of a layer are configured differently."""
        return any(leaf.module for leaf in self.tree.leaves)


Broken = dict[Strategy, list[tuple[str, str]]]
"""Laws that flat strategies break in a context, by code and message."""


def legal_tree(context: Context, tree: ResolvedTree, known: Broken | None = None) -> TreeStrategies:
    """Return the strategies of all leaves of a tree for a transformer.

    ``known``: laws checked earlier in the same context; newly checked laws are added.

    Raises
    ------
    TreeError
        A leaf breaks a law of flat strategies, its devices do not match its degrees, or the stages are not on the ranks
        of the schedule; the error has the path of the node.
    """
    _check_order(context, tree)
    placement = _placement(tree)
    found: dict[tuple[object, ...], Strategy] = {}
    known = {} if known is None else known
    rows, stages = [], []
    for stage in tree.stages:
        row = []
        for leaf in stage.leaves:
            what = leaf.module or ("" if leaf.layer.isdigit() else leaf.layer)
            degrees = (getattr(leaf.compute, name) for name in _DEGREES)
            key = (*degrees, leaf.zero, leaf.shard, leaf.recompute, len(stage.devices), what)
            if leaf.compute.cut is not None:
                raise TreeError(
                    (*leaf.place, "compute", "cut"), "a transformer is cut by degrees; use dp, tp, cp, ep, etp and sp"
                )
            if leaf.compute.on is not None or leaf.layouts:
                key = ("compute", "on") if leaf.compute.on is not None else ("memory", *list(leaf.layouts)[:1])
                raise TreeError((*leaf.place, *key), "operators of a graph have it; a transformer is split by degrees")
            if leaf.compute.deal:
                raise TreeError(
                    (*leaf.place, "compute", "deal"), "layers of a transformer are on all devices of their stage"
                )
            if key not in found:
                found[key] = _leaf_strategy(context, tree, stage, leaf, placement, known)
            _check_module(context, leaf, found[key])
            row.append(found[key])
        leaves, joined = _joined(stage.leaves, row)
        stages.append(replace(stage, leaves=leaves))
        rows.append(joined)
    strategies = TreeStrategies(tree=replace(tree, stages=tuple(stages)), of_leaf=tuple(rows))
    _check_tied(context, strategies)
    return strategies


def _leaf_strategy(
    context: Context, tree: ResolvedTree, stage: Stage, leaf: Leaf, placement: Placement, known: Broken
) -> Strategy:
    compute, count = leaf.compute, len(stage.devices)
    tp, cp, ep, etp = compute.tp or 1, compute.cp or 1, compute.ep or 1, compute.etp or 1
    recompute = leaf.recompute
    if leaf.module == "attention":
        ep = etp = 1
    if leaf.module == "mlp" and recompute == Recompute.SELECTIVE:
        recompute = Recompute.NONE
    dp = count // (tp * cp) if compute.dp is None else compute.dp
    if dp * tp * cp != count:
        law = (
            f"not divisible by tp*cp = {tp}*{cp} = {tp * cp}; use a product that divides {count}"
            if compute.dp is None
            else f"not dp*tp*cp = {dp}*{tp}*{cp} = {dp * tp * cp}; leave dp out, or name {count} in all"
        )
        devices = ranges_text(stage.devices)
        raise TreeError((*leaf.place, "compute"), f"the {count} devices {devices} of its stage are {law}")
    batch, count_m = context.workload.global_batch, tree.microbatches
    if batch % (count_m * dp):
        raise TreeError(
            (*leaf.place, "compute", "dp"),
            f"global batch {batch} is not divisible by microbatches*dp = {count_m}*{dp} = {count_m * dp}; use a "
            "product that divides it",
        )
    pp = len(tree.groups)
    strategy = Strategy(
        dp=dp,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        etp=etp,
        mbs=batch // (count_m * dp),
        vpp=len(tree.stages) // pp,
        schedule=tree.order,
        zero=leaf.zero if dp * cp > 1 else 0,
        shard=leaf.shard if leaf.zero else ALL_REPLICAS,
        sp=bool(compute.sp) and tp > 1,
        recompute=recompute,
        placement=placement if dp > 1 and pp > 1 else Placement.TP_CP_EP_DP_PP,
    )
    if strategy not in known:
        known[strategy] = list(violations(axis_values(strategy) | {"split": CUSTOM_SPLIT}, context))
    others = _OTHERS.get(leaf.module or leaf.layer, ())
    for code, law in known[strategy]:
        if code not in others:
            raise TreeError((*leaf.place, *_KEY_OF.get(code, ())), law)
    return strategy


def _check_module(context: Context, leaf: Leaf, strategy: Strategy) -> None:
    """Refuse an MLP with its own configuration whose inner width its degrees do not divide."""
    if leaf.module != "mlp":
        return
    mlp = layer_at(context.model, int(leaf.layer)).feed_forward
    widths = (
        (("etp", mlp.expert_hidden, "an expert"), ("tp", mlp.shared_hidden, "the shared experts"))
        if isinstance(mlp, MixtureOfExperts)
        else (("tp", mlp.hidden, "the MLP"),)
    )
    for axis, width, what in widths:
        degree = int(getattr(strategy, axis))
        if width % degree:
            raise TreeError(
                (*leaf.place, "compute", axis),
                f"the inner width {width} of {what} is not divisible by {axis}={degree}; {use_one_of(width, most=12)}",
            )


def _joined(leaves: tuple[Leaf, ...], strategies: Sequence[Strategy]) -> tuple[tuple[Leaf, ...], tuple[Strategy, ...]]:
    """Return the leaves of a stage and their strategies, with equal modules of a layer merged."""
    kept: list[tuple[Leaf, Strategy]] = []
    for leaf, strategy in zip(leaves, strategies, strict=True):
        before, its = kept[-1] if kept else (leaf, strategy)
        complete = _whole(its, strategy) if before.layer == leaf.layer and before is not leaf else None
        if complete is not None and before.host == leaf.host:
            kept[-1] = (replace(before, module=""), complete)
        else:
            kept.append((leaf, strategy))
    return tuple(leaf for leaf, _ in kept), tuple(strategy for _, strategy in kept)


def _whole(attention: Strategy, mlp: Strategy) -> Strategy | None:
    """Return the strategy of a layer from its modules' strategies, None where these differ."""
    # Experts belong to the MLP only, and recompute of the attention core to the attention only.
    core = attention.recompute == Recompute.SELECTIVE and mlp.recompute == Recompute.NONE
    complete = replace(mlp, recompute=attention.recompute) if core else mlp
    return complete if replace(attention, ep=mlp.ep, etp=mlp.etp) == complete else None


def _check_order(context: Context, tree: ResolvedTree) -> None:
    """Refuse stages that are not on the ranks of the schedule."""
    pp, count, kind = len(tree.groups), len(tree.stages), schedule_of(tree.order)
    if tree.in_flight and (count > pp or not kind.whole_stages):
        raise TreeError(
            ("schedule", "in_flight"),
            f"in_flight needs 1f1b or gpipe with one virtual stage per pipeline rank, but the order is "
            f"{SPELLING['schedule'][tree.order]} with {count} on {pp}",
        )
    for number, stage in enumerate(tree.stages):
        rank = min(number, count - 1 - number) if kind.turns_back else number % pp
        if tree.rank_of_stage[number] != rank:
            raise TreeError(
                (*stage.place, "devices"),
                f"{SPELLING['schedule'][tree.order]} runs virtual stage {number} of {count} on the devices "
                f"{ranges_text(tree.groups[rank])}, but it is on {ranges_text(stage.devices)}",
            )
    if tree.device_count > context.cluster.max_devices:
        raise TreeError(
            (), f"the cluster has {context.cluster.max_devices} devices, but the tree occupies {tree.device_count}"
        )


def _placement(tree: ResolvedTree) -> Placement:
    """Return the placement that matches the devices of the stages."""
    groups = tree.groups
    if all(group == tuple(range(group[0], group[0] + len(group))) for group in groups):
        return Placement.TP_CP_EP_DP_PP
    inner = {(leaf.compute.tp or 1) * (leaf.compute.cp or 1) for leaf in tree.leaves}
    for group, stage in zip(groups, tree.stages, strict=False):
        width, stride = next(iter(inner)), next(iter(inner)) * len(groups)
        regular = tuple(group[0] + place // width * stride + place % width for place in range(len(group)))
        if len(inner) > 1 or group != regular:
            raise TreeError(
                (*stage.place, "devices"),
                "devices of a stage are a range like 0-7, or equal blocks of tp*cp devices, one for each replica, with "
                f"the blocks of the other stages between them, but got {ranges_text(group)}",
            )
    return Placement.TP_CP_EP_PP_DP


def _check_tied(context: Context, strategies: TreeStrategies) -> None:
    """Refuse a tied table that embedding and head, on the same devices, cut differently."""
    first, last = strategies.of_leaf[0][0], strategies.of_leaf[-1][-1]
    tree = strategies.tree
    if context.model.tied_embeddings and first.tp != last.tp and tree.rank_of_stage[0] == tree.rank_of_stage[-1]:
        place = tree.stages[-1].leaves[-1].place
        raise TreeError(
            (*place, "compute", "tp"),
            f"embedding and head of {context.model.name} share one table on the same devices and must cut it alike, "
            f"but tp is {first.tp} and {last.tp}",
        )
