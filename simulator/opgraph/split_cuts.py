"""Cuts of every operator, by axis, under a split that is not a pipeline."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from forerun.spaces.operators import Cut, spatial_axes
from forerun.spaces.opgraph import WEIGHTED, GraphModel, Kind, Operator
from forerun.spaces.opgraph.limits import tail_start
from forerun.spaces.opgraph.split import Mode, Split

Cuts = Mapping[str, int]
"""Degrees by axis, outermost first."""


def degrees_by_axis(cuts: Iterable[Cut]) -> dict[str, int]:
    """Return the product of the cuts of every axis; axes without a cut have the degree 1."""
    degrees: dict[str, int] = defaultdict(lambda: 1)
    for cut in cuts:
        if cut.axis is not None:
            degrees[cut.axis] *= cut.degree
    return degrees


@lru_cache(maxsize=1024)
def split_cuts(model: GraphModel, split: Split) -> Mapping[str, Cuts]:
    """Return the cuts of every operator by name, without distributed tables."""
    dealt = {table.name for table in model.tables} if split.spread else set()
    start = tail_start(model, split.grid) if split.mode is Mode.SPATIAL else len(model.operators)
    mixed = model.linear_runs if split.mixed else frozenset()
    return {
        operator.name: _cut(operator, split, tail=place >= start, mixed=operator.name in mixed)
        for place, operator in enumerate(model.operators)
        if operator.name not in dealt
    }


def _cut(operator: Operator, split: Split, *, tail: bool, mixed: bool) -> Cuts:
    if mixed:
        uncut = operator.kind is Kind.LINEAR and operator.filters < split.replicas
        return {"replicate" if uncut else _features(operator): split.replicas}
    cut = {"batch": split.replicas}
    if split.parts == 1:
        return cut
    if split.mode is Mode.SPATIAL:
        # The parts of an image exchange all gradients with each other, including those of the repeated tail.
        return cut | ({"average": split.parts} if tail else _grid(operator, split.grid))
    return cut | {_product_axis(operator, split): split.parts}


def _features(operator: Operator) -> str:
    """Return the feature axis of a linear layer's output; for element-wise operators on tokens, the last axis."""
    tokens = operator.kind is not Kind.LINEAR and len(operator.output) > 1
    return spatial_axes(len(operator.output) - 1)[-1] if tokens else "channels"


def _grid(operator: Operator, grid: Sequence[int]) -> dict[str, int]:
    names = spatial_axes(len(operator.output) - 1)
    return {name: degree for name, degree in zip(names, grid, strict=False) if degree > 1}


def _product_axis(operator: Operator, split: Split) -> str:
    """Return the axis of a product with a weight that filter or channel splits cut."""
    # Other operators are repeated, and so are operators with fewer units than parts: the last layer's filters, the
    # channels of the data.
    if operator.kind not in WEIGHTED:
        return "replicate"
    if split.mode is Mode.FILTER:
        return "channels" if operator.filters >= split.parts else "replicate"
    if not operator.inputs or operator.channels_in < split.parts:
        return "replicate"
    return "in_channels" if operator.groups == 1 else "channels"
