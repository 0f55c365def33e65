"""Which legal candidates need no scoring: those whose lower bound is above a key that enough others reach.

The key comes from a sample that depends on the space alone, so that what is passed over, and its count, are the same
whatever slices and workers a search has.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from forerun.search.request.objectives import Objective
from forerun.simulator.core.bound import LeastStep
from forerun.simulator.score_table import Floats
from forerun.spaces.strategies import StrategySpace, StrategyTable

WORTH = 1 << 26
"""Candidates, legal or not, of a space that is worth a sample: smaller ones are scored whole in under a second."""
SAMPLE = 1 << 17
"""Legal candidates of a sample: some per cent of a space that is worth one, and enough for ``top`` that fit."""
WINDOWS = 1024
"""Parts of the space that a sample is taken from, in an order that spreads over all of it from the start."""
WINDOW_SHARE = 16
"""A sample takes one candidate of so many in a window."""
SLOWER = "slower"
"""Reason code of legal candidates that were not scored: their compute and exposed communication alone take longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Candidates whose first key must exceed ``worst`` are not among the best.

    ``least`` remembers what layers take; it changes what a search costs, never what it finds.
    """

    worst: float
    objective: Objective
    least: LeastStep = field(compare=False)
    slowdown: Mapping[int, float] = field(default_factory=dict)

    def keeps(self, table: StrategyTable) -> NDArray[np.bool_]:
        """Return which candidates [N] may be among the best."""
        return self._reached(self.least.step_s(table), table)

    def hopeless(self, prefixes: StrategyTable) -> NDArray[np.bool_]:
        """Return which prefixes [N] of candidates (axes up to ``ASKED_AFTER``) have none below that may be among the
        best; ``keeps`` would keep none of them."""
        return ~self._reached(self.least.below_s(prefixes), prefixes)

    def _reached(self, step_s: Floats, table: StrategyTable) -> NDArray[np.bool_]:
        assert self.objective.plain is not None
        if self.slowdown:
            step_s = step_s * slowdowns(table, self.slowdown)
        keys = self.objective.plain(step_s, table)
        return keys * (1 - ROUNDING) <= self.worst


ROUNDING = 1e-9
"""Relative; a bound adds the same seconds in another order than the score that it bounds."""


def slowdowns(table: StrategyTable, slowdown: Mapping[int, float]) -> Floats:
    """Return the slowdown [N] of every candidate's number of GPUs."""
    factors: Floats = np.array([slowdown[int(gpus)] for gpus in table.choices["gpus"]])[table.codes["gpus"]]
    return factors


def sample_tables(space: StrategySpace) -> Iterator[StrategyTable]:
    """Yield the legal candidates of windows spread over a space, far ones first."""
    width = max(1, space.size // WINDOWS)
    bits = WINDOWS.bit_length() - 1
    for number in range(WINDOWS):
        window = int(f"{number:0{bits}b}"[::-1], 2)  # 0, 1/2, 1/4, 3/4, ... of the space
        yield space.table(window * width, window * width + max(1, width // WINDOW_SHARE))[0]
