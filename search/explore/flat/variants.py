"""Rows of a flat search, each with its variants within the prediction error."""

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.search.board.rows import Row
from forerun.search.explore.flat.best import rows_of_best
from forerun.search.explore.flat.exhaustive import CHUNK, Best, Problem, chunks_of, gathered, interrupted, lowest
from forerun.search.explore.flat.sample import IDEAS
from forerun.search.order.ideas import ALIKE, FAR, KINDS, MOST_VARIANTS, replaces, shown
from forerun.search.order.objectives import objective_named
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.spaces.strategies import AXES, StrategySpace


def flat_rows(setting: Setting[AnyContext], problem: Problem, best: Best, score: Scorer) -> tuple[Row[Any], ...]:
    """Return the rows of an exhaustive search, each with its folded variants."""
    if not problem.ideas or not isinstance(problem.space, StrategySpace):
        return rows_of_best(setting, problem, best.take(np.arange(min(len(best), setting.top))))
    leaders = best.take(np.arange(min(len(best), problem.top)))
    found = _with_variants(problem, problem.space, leaders, score)
    places = _places(problem, problem.space, found)[: setting.top]
    rows = rows_of_best(setting, problem, found.take(np.array([leader for leader, *_ in places])))
    others = (np.array(own[1 : MOST_VARIANTS + 1], dtype=np.intp) for own in places)
    variants = (tuple(row.variant for row in rows_of_best(setting, problem, found.take(own))) for own in others)
    return tuple(dataclasses.replace(row, variants=own) for row, own in zip(rows, variants, strict=True))


def _with_variants(problem: Problem, space: StrategySpace, leaders: Best, score: Scorer) -> Best:
    """Return the leaders with equally good candidates of their degrees, best first; with all candidates of their
    degrees if too few leaders are near the best.
    """
    width, context, alike = problem.idea_width, space.context, 1 + ALIKE
    if np.count_nonzero(leaders.keys[0] <= (1 + FAR) * leaders.keys[0, 0]) < problem.top:
        alike = math.inf
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
        within = kept & (keys[0] <= alike * leaders.keys[0, places])
        near.append(Best(index=table.index, keys=keys, scores=bare).take(np.flatnonzero(within)))
    found = gathered(near)
    return lowest(found, np.ones(len(found), dtype=bool), len(found))


def _places(problem: Problem, space: StrategySpace, found: Best) -> list[list[int]]:
    """Return the positions in ``found`` of the rows, each followed by its variants."""
    kinds = zip(*(digit.tolist() for digit in _digits(space, found.index)), strict=True)
    ideas = (found.index // problem.idea_width).tolist()
    beaten = replaces(found.scores.step_time_s.tolist(), found.scores.peak_memory_bytes.tolist())
    return shown(list(zip(ideas, kinds, strict=True)), found.keys[0], problem.top, beaten)


def _digits(space: StrategySpace, index: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the digits of N candidates on ``KINDS``, shape N each."""
    sizes = [len(space.choices[axis]) for axis in AXES]
    return [index // math.prod(sizes[AXES.index(axis) + 1 :]) % sizes[AXES.index(axis)] for axis in KINDS]
