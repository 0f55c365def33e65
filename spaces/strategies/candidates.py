"""Conversion of a candidate's index to its strategy."""

from collections.abc import Iterable

import numpy as np

from forerun.spaces.strategies.axes import AXES
from forerun.spaces.strategies.software import turned_on
from forerun.spaces.strategies.space import StrategySpace
from forerun.spaces.strategies.strategy import Strategy
from forerun.spaces.strategies.table import strategy_of


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
