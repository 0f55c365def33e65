"""A model as operators in execution order with their shapes: convolutional, recommendation, imported."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.operator import Kind, Operator, Shape

POINTWISE = frozenset({Kind.ACTIVATION, Kind.DROPOUT})
"""Kinds that can process any part of the features from a preceding linear layer."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphModel:
    """Operators in an order with every producer before its readers.

    A model is equal only to itself, which makes it a cheap key for caches.

    Raises:
        RequestError: there are no operators, two have one name, or an input has no earlier producer.
    """

    name: str
    source: str
    input: Shape
    """Shape of one sample (the first input)."""
    operators: tuple[Operator, ...]
    sample: str = "image"
    """Name of one sample in outputs."""
    published_parameters: float | None = None
    """Number in the source; None: none."""
    published_macs: float | None = None
    """Multiply-adds of one sample in the source; None: none."""
    stored_bytes: float | None = None
    """Bytes of one sample in storage (None: as fp32 values)."""
    notes: tuple[str, ...] = field(default=())
    """Remarks; for imported graphs every filled-in value."""

    def __post_init__(self) -> None:
        if not self.operators:
            raise RequestError(f"model {self.name} has no operators")
        seen: set[str] = set()
        for operator in self.operators:
            missing = [name for name in operator.inputs if name not in seen]
            if missing:
                raise RequestError(
                    f"model {self.name}: operator {operator.name} reads {missing[0]}, which is not there"
                )
            if operator.name in seen:
                raise RequestError(f"model {self.name}: two operators are called {operator.name}")
            seen.add(operator.name)

    @cached_property
    def parameters(self) -> int:
        """Trainable parameters of all operators."""
        return sum(operator.parameters for operator in self.operators)

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward pass."""
        return sum(operator.macs for operator in self.operators)

    @cached_property
    def activations(self) -> int:
        """Elements of all outputs of one sample, without views."""
        return sum(o.output_elements for o in self.operators if o.kind is not Kind.VIEW)

    @cached_property
    def tables(self) -> tuple[Operator, ...]:
        """Embedding tables."""
        return tuple(operator for operator in self.operators if operator.kind is Kind.EMBEDDING)

    @cached_property
    def linear_runs(self) -> frozenset[str]:
        """Linear layers, and element-wise operators up to the next one, which ``mixed`` splits by filter."""
        names: set[str] = set()
        for operator in self.operators:
            follows = bool(operator.inputs) and all(name in names for name in operator.inputs)
            if operator.kind is Kind.LINEAR or (operator.kind in POINTWISE and follows):
                names.add(operator.name)
        return frozenset(names)

    @cached_property
    def blocks(self) -> Mapping[str, tuple[str, ...]]:
        """Operators of every block of modules, such as "layer1.0" and "layer1", that is not itself an operator."""
        members: dict[str, list[str]] = {}
        for operator in self.operators:
            parts = operator.block.split(".") if operator.block else []
            for count in range(1, len(parts) + 1):
                members.setdefault(".".join(parts[:count]), []).append(operator.name)
        operators = {operator.name for operator in self.operators}
        return {block: tuple(names) for block, names in members.items() if block not in operators}

    @property
    def layer_count(self) -> int:
        """Number of operators, the layers in the count of launches."""
        return len(self.operators)

    @property
    def layers(self) -> tuple[()]:
        """Return no layers: these belong to transformers."""
        return ()
