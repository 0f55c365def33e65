"""A graph from a file: nodes with attributes, and the shapes of all values, without any framework."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forerun.spaces.errors import RequestError

MAX_NODES = 100_000
MAX_ELEMENTS = 1 << 48
"""Limit of elements of one value: 1 PiB in fp32; more is a mistake or an attack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCall:
    """One node of a graph.

    ``target``: the operator's name in its language; ``inputs`` and ``outputs``: names of values (empty: omitted).
    ``attributes``: numbers, texts and lists of them. ``block``: its modules, separated by dots.
    """

    name: str
    target: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    block: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGraph:
    """A graph. ``shapes``: by value, with batch; ``weights``: trained values; ``constants``: fixed values.

    ``inputs`` are in the order of the graph; the first axis of the first input has ``batch`` samples.

    Raises:
        RequestError: it has no inputs, or more nodes than any model.
    """

    name: str
    source: str
    nodes: tuple[GraphCall, ...]
    shapes: Mapping[str, tuple[int, ...]]
    inputs: tuple[str, ...]
    weights: frozenset[str]
    constants: frozenset[str]
    batch: int
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.nodes) > MAX_NODES:
            raise RequestError(f"{self.source}: a graph has at most {MAX_NODES} nodes, but got {len(self.nodes)}")
        if not self.inputs:
            raise RequestError(f"{self.source}: the graph has no input")
        for name, shape in self.shapes.items():
            if any(extent < 0 for extent in shape) or math.prod(shape) > MAX_ELEMENTS:
                raise RequestError(f"{self.source}: value {name!r} has the shape {shape}, which fits no device")

    def shape(self, node: GraphCall, value: str) -> tuple[int, ...]:
        """Return the shape of a value of ``node``.

        Raises:
            RequestError: the file does not have it.
        """
        if value not in self.shapes:
            raise RequestError(
                f"{self.source}: the shape of {value!r}, which {node.target} ({node.name}) uses, is not known; "
                f"export with fixed shapes"
            )
        return self.shapes[value]

    def per_sample(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return a shape without its batch; values without a batch keep all axes."""
        if not shape:
            return (1,)
        first, rest = shape[0], shape[1:]
        if first % self.batch:
            return shape
        kept = (first // self.batch, *rest)
        return kept[1:] if kept[0] == 1 and len(kept) > 1 else kept
