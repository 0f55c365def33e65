"""Mixtures: a split for every layer.

``data16, linear*: filter16, conv1: data4 spatial4`` gives every operator ``data16`` except those that match a pattern
(shell wildcards; the last match counts). All splits use the same devices. Where an operator cannot be cut by its split
(a kernel wider than a part, three channels for four devices, no space after a linear layer), each of these devices
repeats it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.operators import Cut, CutOperator, check_cuts, spatial_axes
from forerun.spaces.opgraph.model import GraphModel
from forerun.spaces.opgraph.operator import WEIGHTED
from forerun.spaces.opgraph.split import Mode, Split, parse_split

_PRODUCTS = frozenset(kind.value for kind in WEIGHTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """``default``: split of all operators not in ``layers``; ``layers``: patterns with their splits.

    A pattern may be one of ``blocks``, which means all its operators.

    Raises:
        RequestError: splits use different numbers of devices, or one is a pipeline or has flags of whole models.
    """

    default: Split
    layers: tuple[tuple[str, Split], ...]
    blocks: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for split in (self.default, *(split for _, split in self.layers)):
            if split.mode is Mode.PIPELINE or split.mixed or split.spread or split.segments > 1:
                raise RequestError(f"layers are split by data, spatial, filter or channel, but got {split}")
            if split.devices != self.devices:
                raise RequestError(
                    f"all layers need the same devices, but {split} has {split.devices} and {self.default} has "
                    f"{self.devices}"
                )

    @property
    def devices(self) -> int:
        """Devices of every layer."""
        return self.default.devices

    def of(self, name: str) -> Split:
        """Return the split of the operator called ``name``."""
        chosen = self.default
        for pattern, split in self.layers:
            if name in self.blocks.get(pattern, ()) or fnmatchcase(name, pattern):
                chosen = split
        return chosen

    def __str__(self) -> str:
        return ", ".join([str(self.default), *(f"{pattern}: {split}" for pattern, split in self.layers)])


def is_mixture(text: str) -> bool:
    """Check whether a text has splits for single layers."""
    return ":" in text or "," in text


def parse_mixture(text: str, model: GraphModel) -> Mixture:
    """Return the mixture in ``text`` for ``model``.

    Raises:
        RequestError: a part has another form, or a pattern matches no operator.
    """
    first, *rest = (part.strip() for part in text.split(","))
    if ":" in first:
        raise RequestError(f"a mixture begins with the split of all other layers, like data8, but got {first!r}")
    layers = []
    blocks: dict[str, frozenset[str]] = {}
    names = [operator.name for operator in model.operators]
    for part in rest:
        pattern, separator, split = (piece.strip() for piece in part.partition(":"))
        if not separator or not pattern or not split:
            raise RequestError(f"a layer's split is written NAME: SPLIT, like linear*: filter8, but got {part!r}")
        if pattern in model.blocks:
            blocks[pattern] = frozenset(model.blocks[pattern])
        elif not any(fnmatchcase(name, pattern) for name in names):
            raise unknown(f"operator of {model.name}", pattern, [*names, *model.blocks])
        layers.append((pattern, parse_split(split)))
    return Mixture(default=parse_split(first), layers=tuple(layers), blocks=blocks)


def cuts_of(operator: CutOperator, split: Split) -> tuple[Cut, ...]:
    """Return the cuts of an operator under ``split``: replicas outermost, then the cuts of its mode, or copies."""
    cuts = [Cut(axis="batch", degree=split.replicas)]
    for axis, degree in _axes(operator, split):
        uncut = Cut(axis=None, degree=degree)
        one = Cut(axis=axis, degree=degree)
        cuts.append(one if axis is not None and _possible(operator, [*cuts, one]) else uncut)
    return tuple(cut for cut in cuts if cut.degree > 1)


def _axes(operator: CutOperator, split: Split) -> Iterator[tuple[str | None, int]]:
    known = {axis.name: axis for axis in operator.axes}
    if split.mode is Mode.SPATIAL:
        spatial = [axis for axis in ("depth", "height", "width") if axis in known]
        names = spatial_axes(len(spatial)) if spatial else ()
        for place, degree in enumerate(split.grid):
            yield (names[place] if place < len(names) else None), degree
    elif split.mode in (Mode.FILTER, Mode.CHANNEL):
        axis = "channels" if split.mode is Mode.FILTER else "in_channels"
        # Norms and activations of all channels are repeated, as in the closed forms.
        yield (axis if operator.kind in _PRODUCTS and axis in known else None), split.parts
    elif split.parts > 1:
        yield None, split.parts


def _possible(operator: CutOperator, cuts: list[Cut]) -> bool:
    try:
        check_cuts(operator, cuts)
    except RequestError:
        return False
    return True


def check_mixture(graph_batch: int, mixture: Mixture) -> None:
    """Refuse a mixture whose replicas do not divide the batch.

    Raises:
        RequestError: it does not split evenly.
    """
    for split in (mixture.default, *(split for _, split in mixture.layers)):
        if graph_batch % split.replicas:
            near = math.gcd(graph_batch, split.replicas)
            raise RequestError(
                f"replicas divide the global batch, but got {split.replicas} of {graph_batch}; use {near}"
            )
