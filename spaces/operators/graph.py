"""A layer, or an entire model, as a graph of operators."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from forerun.spaces.errors import RequestError
from forerun.spaces.operators.axes import CutOperator


@dataclass(frozen=True, kw_only=True)
class OperatorGraph:
    """Operators in any order, connected by the names of their tensors.

    A tensor without a producer is an input of the graph.

    Raises:
        RequestError: two operators have one name or produce one tensor, operators depend on each other in a cycle, or a
            tensor has different sizes at its producer and its reader.
    """

    name: str
    operators: tuple[CutOperator, ...]

    def __post_init__(self) -> None:
        for what, names in (
            ("operators have the name", [operator.name for operator in self.operators]),
            ("operators make the tensor", [operator.output.name for operator in self.operators]),
        ):
            twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
            if twice:
                raise RequestError(f"{self.name}: two {what} {twice[0]}; give each its own")
        for operator in self.ordered:
            for operand in operator.inputs:
                made = self.producers.get(operand.name)
                if made is None:
                    continue
                size, needed = made.elements(made.output), operator.elements(operand)
                if made.output.element_bytes is None and size != needed:
                    raise RequestError(
                        f"{self.name}: {operator.name} reads {operand.name} as {_shape(operator.shape(operand))}, but "
                        f"{made.name} makes {_shape(made.shape(made.output))}"
                    )

    @cached_property
    def producers(self) -> Mapping[str, CutOperator]:
        """The producer of each tensor."""
        return {operator.output.name: operator for operator in self.operators}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[CutOperator, ...]]:
        """The operators that read each tensor, in execution order."""
        readers: dict[str, list[CutOperator]] = {}
        for operator in self.ordered:
            for name in dict.fromkeys(operand.name for operand in operator.inputs):
                readers.setdefault(name, []).append(operator)
        return {name: tuple(operators) for name, operators in readers.items()}

    @cached_property
    def ordered(self) -> tuple[CutOperator, ...]:
        """Operators in execution order: the given order, corrected so that producers precede readers.

        Raises:
            RequestError: operators depend on each other in a cycle; the message names them.
        """
        makers = {operator.output.name: operator.name for operator in self.operators}
        needs = {
            operator.name: [makers[operand.name] for operand in operator.inputs if operand.name in makers]
            for operator in self.operators
        }
        place: dict[str, int] = {}
        by_name = {operator.name: operator for operator in self.operators}
        for name in by_name:
            stack = [(name, iter(needs[name]))]
            path = {name: None}
            while stack and name not in place:
                here, rest = stack[-1]
                following = next((other for other in rest if other not in place), None)
                if following is None:
                    place[here] = len(place)
                    stack.pop()
                    path.pop(here)
                elif following in path:
                    circle = [*list(path)[list(path).index(following) :], following]
                    raise RequestError(
                        f"{self.name}: operators must not need each other in a circle, but "
                        f"{' <- '.join(circle)}; let one of them read another tensor"
                    )
                else:
                    stack.append((following, iter(needs[following])))
                    path[following] = None
        return tuple(by_name[name] for name in sorted(by_name, key=place.__getitem__))

    @property
    def weight_elements(self) -> int:
        """Elements of all weights; a shared weight counts once."""
        weights = {w.name: operator.elements(w) for operator in self.operators for w in operator.weights}
        return sum(weights.values())

    @property
    def flops(self) -> float:
        """Operations of one forward pass on matrix units."""
        return math.fsum(operator.flops for operator in self.operators)


def _shape(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
