"""Lower bounds of legal candidates: candidates whose bound exceeds the key of enough others are not scored.

The key comes from a sample that depends on the space alone (``sample.py``), so that the skipped candidates and their
count do not depend on slices and workers.
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
    """A candidate is skipped if its first key must exceed ``worst`` and its key by predicted time alone ``fastest``.

    ``least`` caches the least times of layers; it affects the duration of a search, never its result.
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
        """Return a mask [N] of the prefixes (axes up to ``ASKED_AFTER``) of which ``keeps`` would keep no candidate."""
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
"""Relative rounding margin: a bound adds the same seconds in another order than the score."""


def slowdowns(table: StrategyTable, slowdown: Mapping[int, float]) -> Floats:
    """Return the slowdown [N] by interruptions for every candidate's number of GPUs."""
    factors: Floats = np.array([slowdown[int(gpus)] for gpus in table.choices["gpus"]])[table.codes["gpus"]]
    return factors
