"""How many examples a property is tried on: fewer in every run, all of them in ``make test-all``."""

import numpy as np
from hypothesis import settings

from forerun.spaces.strategies import StrategyTable

FEWEST = 5
"""Examples that every property gets, however few it has."""


def tries(full: int) -> int:
    """Return the number of examples under the Hypothesis profile in use, where the profile ``full`` has ``full``."""
    share = settings().max_examples / settings.get_profile("full").max_examples
    return max(min(FEWEST, full), round(full * share))


def every_example() -> bool:
    """Whether the Hypothesis profile in use is ``full``."""
    return settings().max_examples >= settings.get_profile("full").max_examples


def some_of(table: StrategyTable, most: int = 1_500) -> StrategyTable:
    """Return all rows under the profile ``full``, else at most so many, drawn from all places and always the same."""
    if len(table) <= most or every_example():
        return table
    return table.take(np.sort(np.random.default_rng(0).choice(len(table), most, replace=False)))
