"""Trees near a flat strategy: other degrees of modules or vocabulary layers, recompute of some layers.

A *variation* is the difference from the strategy. A search can compare, store and change variations, which are values;
the tree of a variation has the form of a user's tree.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from forerun.spaces.strategies import SPELLING, Context, Recompute, Strategy
from forerun.spaces.trees.convert import tree_of
from forerun.spaces.trees.values import Computation, Node, Timing

_HOST_WORDS: Mapping[str, str] = MappingProxyType({"optimizer": "optimizer states"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """Other degrees of a module on the devices of its stage; ``dp`` follows."""

    tp: int
    sp: bool = False

    def __str__(self) -> str:
        return f"tp {self.tp}{' sp' if self.sp else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """Changes of a flat strategy by a tree; None: unchanged."""

    strategy: Strategy
    """The strategy, legal and flat within its stages."""
    attention: Cutting | None = None
    mlp: Cutting | None = None
    vocabulary: Cutting | None = None
    """Degrees of embedding and head."""
    recompute: Recompute | None = None
    """Recompute of all layers."""
    recomputed: tuple[int, ...] = ()
    """Number of first layers of every virtual stage that are fully recomputed in addition."""
    module: str = ""
    """Recomputed module of these layers; empty: all modules."""
    host: tuple[str, ...] = ()
    """Tensors of all layers in host memory."""

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes as short texts."""
        words = [
            f"{what} {cutting}"
            for what, cutting in (("attention", self.attention), ("mlp", self.mlp), ("vocabulary", self.vocabulary))
            if cutting is not None
        ]
        if self.recompute is not None:
            words.append(f"recompute {SPELLING['recompute'][int(self.recompute)]}")
        if any(self.recomputed):
            counts = sorted(set(self.recomputed))
            most = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
            what = f"the {self.module} of " if self.module else ""
            words.append(f"{what}{most} layers a stage recomputed whole")
        if self.host:
            words.append(host_words(self.host))
        return tuple(words)


def host_words(tensors: Iterable[str]) -> str:
    """Describe the tensors in host memory.

    >>> host_words(("optimizer", "parameters"))
    'optimizer states and parameters in host memory'
    """
    return f"{' and '.join(_HOST_WORDS.get(tensor, tensor) for tensor in tensors)} in host memory"


def varied_tree(context: Context, variation: Variation) -> Node:
    """Return a variation as a tree, legal or not."""
    root = tree_of(context, variation.strategy)
    if variation.attention or variation.mlp or variation.vocabulary:
        root = replace(root, compute=replace(root.compute, dp=None))
    if variation.recompute is not None:
        root = replace(root, schedule=replace(root.schedule, recompute=variation.recompute))
    if variation.host:
        root = replace(root, memory=replace(root.memory, host=frozenset(variation.host)))
    stages = tuple(_stage(variation, stage, number) for number, stage in enumerate(root.children))
    return replace(root, children=stages)


def layers_of(stage: Node) -> tuple[int, ...]:
    """Return the numbers of the layers of a stage's node in the form of ``tree_of``."""
    numbers: list[int] = []
    for word in stage.layers or ():
        low, _, high = word.partition("-")
        if low.isdigit():
            numbers += range(int(low), int(high or low) + 1)
    return tuple(numbers)


def _stage(variation: Variation, stage: Node, number: int) -> Node:
    """Return a stage's node with its changes."""
    layers = layers_of(stage)
    count = min(variation.recomputed[number], len(layers)) if variation.recomputed else 0
    children = list(stage.children)
    degrees = {"attention": variation.attention, "mlp": variation.mlp}
    if not any(degrees.values()) and not variation.module:
        children += _recomputed(layers, count, None)
    else:
        for module, cutting in degrees.items():
            recomputed = count if variation.module in ("", module) else 0
            node = Node(
                modules=(module,), compute=_computation(cutting), children=_recomputed(layers, recomputed, len(layers))
            )
            if recomputed == len(layers):
                node = replace(node, children=(), schedule=Timing(recompute=Recompute.FULL))
            if cutting is not None or recomputed:
                children.append(node)
    for end in ("embedding", "head"):
        if variation.vocabulary is not None and end in (stage.layers or ()):
            children.append(Node(layers=(end,), compute=_computation(variation.vocabulary)))
    placed = (replace(child, place=(*stage.place, "children", place)) for place, child in enumerate(children))
    return replace(stage, children=tuple(map(_placed, placed)))


def _placed(node: Node) -> Node:
    """Return a node whose children have their paths."""
    below = (replace(child, place=(*node.place, "children", place)) for place, child in enumerate(node.children))
    return replace(node, children=tuple(map(_placed, below)))


def _computation(cutting: Cutting | None) -> Computation:
    return Computation() if cutting is None else Computation(tp=cutting.tp, sp=cutting.sp)


def _recomputed(numbers: tuple[int, ...], count: int, complete: int | None) -> tuple[Node, ...]:
    """Return the node of the first ``count`` layers, which are recomputed; none if they are all ``complete`` ones."""
    if not count or count == complete:
        return ()
    layers = f"{numbers[0]}-{numbers[count - 1]}" if count > 1 else f"{numbers[0]}"
    return (Node(layers=(layers,), schedule=Timing(recompute=Recompute.FULL)),)
