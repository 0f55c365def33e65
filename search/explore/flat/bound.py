"""Lower bounds of legal candidates: those above a key that enough others reach are not scored.

The key comes from a sample that depends on the space alone (``sample.py``), so that what is passed over, and its count,
are the same whatever slices and workers a search has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from forerun.search.order.objectives import Objective
from forerun.search.order.worth import launch_factor
from forerun.simulator.core.bound import LeastStep
from forerun.simulator.score_table import Floats
from forerun.spaces.strategies import StrategyTable

SLOWER = "slower"
"""Reason code of legal candidates that were not scored: their compute and exposed communication alone take longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Candidates whose first key must exceed ``worst``, and whose key by predicted time alone ``fastest``, are none of
    those that a search names.

    ``least`` remembers what layers take; it changes what a search costs, never what it finds.
    """

    worst: float
    fastest: float
    objective: Objective
    least: LeastStep = field(compare=False)
    slowdown: Mapping[int, float] = field(default_factory=dict)

    def keeps(self, table: StrategyTable) -> NDArray[np.bool_]:
        """Return a mask [N] of the candidates that may be among the best."""
        return self._reached(self.least.step_s(table), table)

    def hopeless(self, prefixes: StrategyTable) -> NDArray[np.bool_]:
        """Return a mask [N] of the prefixes (axes up to ``ASKED_AFTER``) of whose candidates ``keeps`` keeps none."""
        return ~self._reached(self.least.below_s(prefixes), prefixes)

    def _reached(self, step_s: Floats, table: StrategyTable) -> NDArray[np.bool_]:
        assert self.objective.plain is not None
        if self.slowdown:
            step_s = step_s * slowdowns(table, self.slowdown)
        keys = self.objective.plain(step_s, table) * (1 - ROUNDING)
        reached = keys <= self.worst
        some = np.flatnonzero(reached & (keys > self.fastest))
        reached[some] = keys[some] * launch_factor(self.least.context, table.take(some)) <= self.worst
        return reached


ROUNDING = 1e-9
"""Relative; a bound adds the same seconds in another order than the score that it bounds."""


def slowdowns(table: StrategyTable, slowdown: Mapping[int, float]) -> Floats:
    """Return the slowdown [N] of every candidate's number of GPUs."""
    factors: Floats = np.array([slowdown[int(gpus)] for gpus in table.choices["gpus"]])[table.codes["gpus"]]
    return factors
