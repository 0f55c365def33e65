"""Limits of each split mode, by batch, image, channels or depth."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from forerun.spaces.divisors import divisors
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.axes import same_space
from forerun.spaces.opgraph.model import GraphModel
from forerun.spaces.opgraph.operator import WEIGHTED, Kind
from forerun.spaces.opgraph.split import Mode, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitLimits:
    """Largest number of parts by mode."""

    extents: tuple[int, ...]
    """Extents of the input along its spatial axes."""
    filters: int
    """Output channels of the operator with the fewest."""
    channels: int
    """Input channels of the operator with the fewest."""
    weighted: int
    """Number of operators with weights, which a pipeline may distribute."""
    filters_at: str
    """Operator that determines ``filters``."""
    channels_at: str
    """Operator that determines ``channels``."""


@lru_cache(maxsize=64)
def split_limits(model: GraphModel) -> SplitLimits:
    """Return the limits of ``model``.

    The last weighted layer does not bound filters (its few outputs are not split), nor the first one channels (an image
    has three).
    """
    weighted = [operator for operator in model.operators if operator.kind in WEIGHTED]
    filters = min(weighted[:-1] or weighted, key=lambda o: o.filters // o.groups, default=None)
    channels = min(weighted[1:] or weighted, key=lambda o: o.channels_in // o.groups, default=None)
    return SplitLimits(
        extents=model.input[1:],
        filters=filters.filters // filters.groups if filters else 1,
        channels=channels.channels_in // channels.groups if channels else 1,
        weighted=max(len(weighted), 1),
        filters_at=filters.name if filters else "",
        channels_at=channels.name if channels else "",
    )


@lru_cache(maxsize=4096)
def tail_start(model: GraphModel, grid: tuple[int, ...]) -> int:
    """Return the index of the first operator without a spatial split.

    There a part would be empty or thinner than its halo, or space ends (a linear layer, or the pool that averages all
    of it).
    """
    if max(grid, default=1) > 1:
        for index, most in enumerate(_most_parts(model)):
            if len(most) < len(grid) or any(parts > extent for parts, extent in zip(grid, most, strict=False)):
                return index
    return len(model.operators)


@lru_cache(maxsize=64)
def _most_parts(model: GraphModel) -> tuple[tuple[int, ...], ...]:
    """Return the largest number of parts of every operator along each spatial axis; empty where none can be cut."""
    return tuple(
        tuple(
            min(after, before // max(halo, 1)) if after > 1 else 1
            for after, before, halo in zip(operator.spatial, operator.input_spatial, operator.halo, strict=False)
        )
        if same_space(operator)
        else ()
        for operator in model.operators
    )


def broken_laws(model: GraphModel, split: Split, batch: int) -> Iterator[tuple[str, str]]:
    """Yield (reason, message) for every law that ``split`` breaks at a global ``batch``."""
    limits, parts, mode = split_limits(model), split.parts, split.mode
    if batch % split.replicas:
        near = max(divisor for divisor in divisors(batch) if divisor <= split.replicas)
        yield "batch", f"replicas divide the global batch, but got {split.replicas} of {batch}; use {near}"
    elif batch // split.replicas % split.segments:
        each = batch // split.replicas
        near = max(divisor for divisor in divisors(each) if divisor <= split.segments)
        yield "segments", f"segments divide the batch of a replica, but got {split.segments} of {each}; use {near}"
    if mode is Mode.SPATIAL:
        yield from _spatial_laws(model, split, limits)
    if mode is Mode.FILTER and parts > limits.filters:
        yield "filters", _too_many(split, "filters", limits.filters_at, limits.filters)
    if mode is Mode.CHANNEL and parts > limits.channels:
        yield "channels", _too_many(split, "channels", limits.channels_at, limits.channels)
    if mode is Mode.PIPELINE and parts > limits.weighted:
        yield "layers", _too_many(split, "layers with weights", "the model", limits.weighted)
    if split.spread and not model.tables:
        yield "tables", f"tables are distributed, but {model.name} has none"
    if split.mixed and not any(operator.kind is Kind.LINEAR for operator in model.operators):
        yield "linear", f"mixed splits linear layers, but {model.name} has none"


def _too_many(split: Split, what: str, where: str, most: int) -> str:
    """Return the message for a mode with more parts than units."""
    return f"{split.mode.name.lower()}{split.parts} needs {split.parts} {what}, but {where} has {most}; use {most}"


def _spatial_laws(model: GraphModel, split: Split, limits: SplitLimits) -> Iterator[tuple[str, str]]:
    if len(split.grid) > len(limits.extents):
        axes = len(limits.extents)
        yield (
            "spatial",
            f"spatial grid {_grid(split)} has {len(split.grid)} axes, but the input of {model.name} has {axes}",
        )
        return
    for parts, extent in zip(split.grid, limits.extents, strict=False):
        if parts > extent:
            yield "spatial", f"spatial {parts} parts do not fit an extent of {extent}; use at most {extent}"
            return
    start = tail_start(model, split.grid)
    if split.parts > 1 and not any(operator.kind in WEIGHTED for operator in model.operators[:start]):
        first = model.operators[min(start, len(model.operators) - 1)]
        shape = "x".join(map(str, first.input))
        yield (
            "spatial",
            (
                f"spatial grid {_grid(split)} cannot split {first.name}, which reads {shape}: each part needs "
                f"at least one row and as many as the halo; use fewer parts"
            ),
        )


def _grid(split: Split) -> str:
    return "x".join(map(str, split.grid))


def check_split(model: GraphModel, split: Split, batch: int) -> None:
    """Refuse a split that breaks a law.

    Raises:
        RequestError: the message has all broken laws.
    """
    broken = [message for _, message in broken_laws(model, split, batch)]
    if broken:
        raise RequestError(f"split {split} is not legal: " + "; ".join(broken))


def grids(parts: int, extents: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the useful grids of ``parts``: strips along the first axis, and the most even grids over more axes."""
    if not extents:
        return
    yield (parts,)
    for axes in range(2, len(extents) + 1):
        even = _even_grid(parts, axes)
        if min(even) > 1:
            yield even


def _even_grid(parts: int, axes: int) -> tuple[int, ...]:
    if axes == 1:
        return (parts,)
    root = round(parts ** (1 / axes) + 1e-9)
    divisor = max((d for d in range(1, max(root, 1) + 1) if parts % d == 0), default=1)
    return tuple(sorted((*_even_grid(parts // divisor, axes - 1), divisor), reverse=True))
