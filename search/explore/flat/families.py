"""The best split of every family of an operator graph."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from forerun.search.board.rows import Row
from forerun.search.explore.flat.best import rows_of_best
from forerun.search.explore.flat.exhaustive import Best, Problem
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.setting import Setting
from forerun.spaces.strategies import StrategySpace

if TYPE_CHECKING:
    from forerun.spaces.opgraph.split import Split


def best_of_families(setting: Setting[AnyContext], problem: Problem, best: Best) -> "tuple[Row[Split], ...]":
    """Return the best row of every family of splits with its rank; none for a transformer."""
    if isinstance(problem.space, StrategySpace):
        return ()
    first: dict[str, int] = {}
    for place, split in enumerate(problem.space.strategies(best.index)):
        first.setdefault(split.family, place)
    places = list(first.values())
    rows = rows_of_best(setting, problem, best.take(np.array(places)))
    return tuple(replace(row, rank=place + 1) for row, place in zip(rows, places, strict=True))
