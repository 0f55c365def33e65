"""Rows of a search, each with its variants within the prediction error."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.search.board.rows import Row
from forerun.search.explore.flat.best import rows_of_best
from forerun.search.explore.flat.exhaustive import CHUNK, Best, Problem, chunks_of, gathered, interrupted, lowest
from forerun.search.explore.flat.sample import IDEAS
from forerun.search.order.ideas import (
    ALIKE,
    FAR,
    KINDS,
    MOST_VARIANTS,
    Ranked,
    chosen_together,
    folded,
    replaces,
    shown,
)
from forerun.search.order.objectives import objective_named
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.spaces.strategies import AXES, Strategy, StrategySpace


def folded_rows(
    setting: Setting,
    ranked: Sequence[Ranked],
    rows_of: Callable[[Sequence[Strategy]], Sequence[Row]],
    top: int,
    *,
    launchable: Callable[[Strategy], bool] = lambda strategy: True,
) -> tuple[Row, ...]:
    """Return the first rows of a ranking.

    Parameters
    ----------
    setting
        Request with all defaults.
    ranked
        Feasible strategies, best first.
    rows_of
        Function from strategies to their rows.
    top
        Most rows.
    launchable
        Function that returns whether a strategy has a launch script; such a variant leads its row.
    """
    if setting.request.all_variants:
        return tuple(rows_of([one.strategy for one in ranked[:top]]))
    ideas = dict(folded(ranked, top, launchable=launchable))
    variants = (tuple(row.variant for row in rows_of(others)) for others in ideas.values())
    return tuple(replace(row, variants=others) for row, others in zip(rows_of(list(ideas)), variants, strict=True))


def flat_rows(setting: Setting[AnyContext], problem: Problem, best: Best, score: Scorer) -> tuple[Row[Any], ...]:
    """Return the rows of an exhaustive search that are ordered together, each with its folded variants."""
    if not problem.ideas or not isinstance(problem.space, StrategySpace):
        return rows_of_best(setting, problem, best.take(np.arange(min(len(best), chosen_together(setting.top)))))
    leaders = best.take(np.arange(min(len(best), problem.top)))
    folded = _with_variants(problem, problem.space, leaders, score)
    places = _places(problem, problem.space, folded)
    rows = rows_of_best(setting, problem, folded.take(np.array([leader for leader, *_ in places])))
    others = (np.array(row_places[1 : MOST_VARIANTS + 1], dtype=np.intp) for row_places in places)
    variants = (
        tuple(row.variant for row in rows_of_best(setting, problem, folded.take(row_places))) for row_places in others
    )
    return tuple(dataclasses.replace(row, variants=row_places) for row, row_places in zip(rows, variants, strict=True))


def _with_variants(problem: Problem, space: StrategySpace, leaders: Best, score: Scorer) -> Best:
    """Return the leaders with equally good candidates of their degrees, best first; with all candidates of their
    degrees if too few leaders are near the best.
    """
    width, context, largest_ratio = problem.idea_width, space.context, 1 + ALIKE
    if np.count_nonzero(leaders.keys[0] <= (1 + FAR) * leaders.keys[0, 0]) < problem.top:
        largest_ratio = math.inf
    place_of = {int(index) // width: place for place, index in enumerate(leaders.index)}
    ideas = np.array(sorted(place_of), dtype=np.int64)
    tables = [space.below_ideas(ideas[start : start + IDEAS]) for start in range(0, len(ideas), IDEAS)]
    others = [table.take(np.flatnonzero(~np.isin(table.index, leaders.index))) for table in tables]
    near = [leaders]
    for table in chunks_of(others, CHUNK):
        bare = score(context, table)
        scores = interrupted(bare, table, problem.slowdown)
        kept, _ = problem.limits.kept(scores, table)
        keys = np.stack(objective_named(problem.objective).keys(context, scores, table))
        places = np.array([place_of[idea] for idea in (table.index // width).tolist()])
        within = kept & (keys[0] <= largest_ratio * leaders.keys[0, places])
        near.append(Best(index=table.index, keys=keys, scores=bare).take(np.flatnonzero(within)))
    together = gathered(near)
    return lowest(together, np.ones(len(together), dtype=bool), len(together))


def _places(problem: Problem, space: StrategySpace, best: Best) -> list[list[int]]:
    """Return the positions in ``best`` of the rows, each followed by its variants."""
    kinds = zip(*(digit.tolist() for digit in _digits(space, best.index)), strict=True)
    ideas = (best.index // problem.idea_width).tolist()
    beaten = replaces(best.scores.step_time_s.tolist(), best.scores.peak_memory_bytes.tolist())
    return shown(list(zip(ideas, kinds, strict=True)), best.keys[0], problem.top, beaten)


def _digits(space: StrategySpace, index: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the digits of N candidates on ``KINDS``, shape N each."""
    sizes = [len(space.choices[axis]) for axis in AXES]
    return [index // math.prod(sizes[AXES.index(axis) + 1 :]) % sizes[AXES.index(axis)] for axis in KINDS]
