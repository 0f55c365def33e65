"""The space of flat strategies: a mixed-radix index over axes, cut early where laws are broken (``walk.py``)."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from forerun.spaces.errors import RequestError
from forerun.spaces.strategies.axes import AXES
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.software import turned_on
from forerun.spaces.strategies.strategy import Strategy
from forerun.spaces.strategies.table import IntArray, StrategyTable, strategy_of
from forerun.spaces.strategies.walk import LATER, EnumeratedPart, Hopeless, below, enumerated, prefixes

DEGREES = AXES[: AXES.index("etp") + 1]
"""Axes that are degrees of parallelism, without ``dp``."""
IDEA = AXES[: AXES.index("etp")]
"""Axes that distinguish ideas; the others distinguish variants of one idea."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySpace:
    """All combinations of the choices of every axis, legal or not. Choices are sorted and distinct.

    Raises:
        RequestError: an axis is missing, unknown or has no choice.
    """

    choices: Mapping[str, tuple[int, ...]]
    context: Context

    def __post_init__(self) -> None:
        if set(self.choices) != set(AXES):
            raise RequestError(f"a space names exactly the axes {', '.join(AXES)}, but got {', '.join(self.choices)}")
        for axis, values in self.choices.items():
            if not values:
                raise RequestError(f"axis {axis} has no choice; name at least one")
            if list(values) != sorted(set(values)):
                raise RequestError(f"choices of {axis} must be sorted and different, but got {values}")
        if self.size >= 1 << 62:
            raise RequestError(
                f"the space has {self.size:.2e} candidates, but an index has at most 62 bits; restrict an axis"
            )

    @property
    def size(self) -> int:
        """Number of candidates, including illegal ones."""
        return math.prod(len(self.choices[axis]) for axis in AXES)

    @property
    def idea_width(self) -> int:
        """Number of candidates per combination of ``IDEA``, the slowest digits of an index."""
        return math.prod(len(self.choices[axis]) for axis in AXES[len(IDEA) :])

    @property
    def below(self) -> int:
        """Number of candidates below one prefix of the axes that a walk asks about (``walk.ASKED_AFTER``)."""
        return math.prod(len(self.choices[axis]) for axis in LATER)

    def table(self, low: int, high: int) -> tuple[StrategyTable, Counter[str]]:
        """Return the legal candidates with index in ``[low, high)`` and the number of illegal ones by reason code."""
        (part,) = enumerated(self.choices, self.context, low, high, at_once=self.size)
        return part.table, part.rejected

    def walk(self, low: int, high: int, hopeless: Hopeless | None = None) -> Iterator[EnumeratedPart]:
        """Yield the legal candidates with index in ``[low, high)``, in parts of bounded size (``walk.enumerated``)."""
        return enumerated(self.choices, self.context, low, high, hopeless=hopeless)

    def degrees(self) -> StrategyTable:
        """Return the combinations of ``DEGREES`` that satisfy the laws of these axes."""
        return prefixes(self.choices, self.context, DEGREES)

    def below_ideas(self, numbers: IntArray) -> StrategyTable:
        """Return the legal candidates of ``IDEA``'s combinations ``numbers`` (ascending, each with a candidate)."""
        return below(self.choices, self.context, numbers, IDEA)


def strategy_at(space: StrategySpace, index: int) -> Strategy:
    """Return candidate number ``index`` of a space, which must be legal."""
    return strategy_of(values_at(space, index))


def values_at(space: StrategySpace, index: int) -> dict[str, int]:
    """Return the values of candidate ``index``, legal or not, on every axis, on ``dp`` and on ``software``.

    ``dp`` is 0 where the other degrees do not divide the GPUs.

    The index is a mixed-radix number with the first axis as the slowest digit.
    """
    values: dict[str, int] = {}
    for axis in reversed(AXES):
        index, digit = divmod(index, len(space.choices[axis]))
        values[axis] = space.choices[axis][digit]
    dp, rest = divmod(values["gpus"], values["tp"] * values["pp"] * values["cp"])
    values["dp"] = dp if rest == 0 else 0
    columns = {axis: np.array([value], dtype=np.int64) for axis, value in values.items()}
    return {**values, "software": values["switches"] | int(turned_on(columns, space.context)[0])}


def strategies_at(space: StrategySpace, indices: Iterable[int]) -> tuple[Strategy, ...]:
    """Return several candidates, in the order given."""
    return tuple(strategy_at(space, int(index)) for index in indices)
