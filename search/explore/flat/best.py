"""The best strategy of a setting, for comparisons in fixes, notes and pages."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.search.board.rows import Row, rows_from
from forerun.search.explore.flat.exhaustive import Best, Problem
from forerun.search.explore.flat.sample import search_space
from forerun.search.request.kinds import kind_of
from forerun.search.request.limits import NO_LIMITS, TrainingLimits
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.simulator import score as simulator_score


def best_row(
    setting: Setting,
    *,
    objective: str | None = None,
    overrides: Mapping[str, Sequence[object]] | None = None,
    limits: TrainingLimits = NO_LIMITS,
    score: Scorer = simulator_score,
    device_s: float = math.inf,
) -> Row | None:
    """Return the row of the best strategy of a setting, None if nothing is feasible.

    ``objective`` and ``overrides`` replace those of the setting; its ``limits`` apply only if given. ``device_s``: as
    for ``best_in``.

    Raises:
        RequestError: no device count is known, or an axis or choice is unknown.
    """
    space = setting.space(overrides)
    return best_in(setting, space, objective=objective, limits=limits, score=score, device_s=device_s)


def best_in(
    setting: Setting[Any],
    space: Any,
    *,
    objective: str | None = None,
    limits: TrainingLimits = NO_LIMITS,
    score: Scorer = simulator_score,
    device_s: float = math.inf,
) -> Row | None:
    """Return the row of the best strategy of a ``space`` of the setting's kind, None if nothing is feasible.

    ``device_s``: device-seconds of a step above which a best row does not matter; the result may then be None.
    """
    problem = Problem(space=space, objective=objective or setting.objective, top=1, limits=limits)
    return first_row(setting, problem, search_space(problem, score=score, device_s=device_s).best)


def first_row(setting: Setting[AnyContext], problem: Problem, best: Best | None) -> Row[Any] | None:
    """Return the row of the first of some candidates, None without any."""
    if best is None or not len(best):
        return None
    return rows_of_best(setting, problem, best.take(np.arange(1)))[0]


def rows_of_best(setting: Setting[AnyContext], problem: Problem, best: Best) -> tuple[Row[Any], ...]:
    """Return the rows of candidates of a problem's space, from the scores of the search."""
    strategies = kind_of(setting.context).strategies(problem.space, best.index)
    return rows_from(setting.context, strategies, best.scores, usd_per_gpu_hour=setting.usd_per_gpu_hour)
