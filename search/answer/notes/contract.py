"""Contract of notes: sentences about ranked rows that can change a decision.

A note is a function of the setting, its rows in rank order (at least one) and a ``NoteSearch``; it returns its
sentences, or none.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from forerun.search.board.found import Alternatives
from forerun.search.board.rows import AnyRow, Row
from forerun.search.explore.flat.best import best_in, best_row
from forerun.search.request.limits import NO_LIMITS, TrainingLimits
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.simulator import score as simulator_score
from forerun.spaces.strategies import StrategySpace


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSearch:
    """Searches whose results notes compare with the rows.

    ``score`` scores candidates; ``alternatives`` are further results of the search.
    """

    score: Scorer = simulator_score
    alternatives: Alternatives = field(default_factory=Alternatives)

    def best(
        self,
        setting: Setting,
        *,
        objective: str | None = None,
        overrides: Mapping[str, Sequence[object]] | None = None,
        limits: TrainingLimits = NO_LIMITS,
        device_s: float = math.inf,
    ) -> Row | None:
        """Return the best row of a setting, None if nothing is feasible; arguments and errors as ``best_row``."""
        score = self.score
        return best_row(
            setting, objective=objective, overrides=overrides, limits=limits, score=score, device_s=device_s
        )

    def best_in(
        self,
        setting: Setting,
        space: StrategySpace,
        *,
        limits: TrainingLimits = NO_LIMITS,
        device_s: float = math.inf,
    ) -> Row | None:
        """Return the best row of a part of a setting's space, None if nothing there is feasible; as ``best_in``."""
        return best_in(setting, space, limits=limits, score=self.score, device_s=device_s)


Note = Callable[[Setting, Sequence[Row], NoteSearch], tuple[str, ...]]
AnyNote = Callable[[Setting[AnyContext], Sequence[AnyRow], NoteSearch], tuple[str, ...]]
"""A note on rows of any kind of model."""
