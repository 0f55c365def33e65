"""The one best strategy of a setting: what fixes, notes and pages compare with."""

from collections.abc import Mapping, Sequence

from forerun.search.board.rows import Row, rows_of
from forerun.search.flat.exhaustive import Problem, search_space
from forerun.search.request.limits import NO_LIMITS, Limits
from forerun.search.request.request import Setting
from forerun.search.request.scorer import Scorer
from forerun.simulator import score as simulator_score
from forerun.spaces.strategies.candidates import strategies_at


def best_row(
    setting: Setting,
    *,
    objective: str | None = None,
    overrides: Mapping[str, Sequence[object]] | None = None,
    limits: Limits = NO_LIMITS,
    score: Scorer = simulator_score,
) -> Row | None:
    """Return the row of the best strategy of a setting, None where nothing is feasible.

    ``objective`` and ``overrides`` take the place of the setting's own; its ``limits`` do not count unless they are
    given.

    Raises:
        RequestError: no device count is known, or an axis or choice is.
    """
    space = setting.space(overrides)
    problem = Problem(space=space, objective=objective or setting.objective, top=1, limits=limits)
    piece = search_space(problem, score=score)
    if piece.best is None or not len(piece.best):
        return None
    strategies = strategies_at(space, piece.best.index)
    return rows_of(setting.context, strategies, usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score)[0]
