"""Ideas and their variants: strategies with the same degrees, of which a leaderboard shows the best.

Placements, virtual stages and micro-batches of one set of degrees often lie closer together than a prediction's error;
ten rows of them would be one row ten times.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.search.board.rows import Row
from forerun.search.board.variants import Variant
from forerun.search.explore.flat.best import rows_of_best
from forerun.search.explore.flat.exhaustive import CHUNK, Best, Problem, chunks_of, gathered, interrupted, lowest
from forerun.search.explore.flat.sample import IDEAS
from forerun.search.request.objectives import objective_named
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.spaces.strategies import AXES, Strategy, StrategySpace

ALIKE = 0.01
"""Variants whose first ranking key is this close to their row's are kept with it: below any prediction's error."""
FAR = 0.25
"""Ideas whose first ranking key is this much above that of the best are slower beyond any doubt: four of five measured
runs lie within 20 % of their prediction. Other strategies of better ideas go before them."""
KINDS = ("mbs", "zero", "sp")
"""Axes of which every choice may make a row where an idea has several: who changes another is after a few per cent."""
MOST_VARIANTS = 100


def flat_rows(setting: Setting[Any], problem: Problem, best: Best, score: Scorer) -> tuple[Row[Any], ...]:
    """Return the rows of what an exhaustive search found, each with its variants where those were folded."""
    shown = best.take(np.arange(min(len(best), setting.top)))
    if not problem.ideas or not isinstance(problem.space, StrategySpace):
        return rows_of_best(setting, problem, shown)
    found = _with_variants(problem, problem.space, shown, score)
    places = _places(problem, problem.space, found)
    rows = rows_of_best(setting, problem, found.take(np.array([leader for leader, *_ in places])))
    others = (np.array(own[1 : MOST_VARIANTS + 1], dtype=np.intp) for own in places)
    variants = (tuple(map(variant_of, rows_of_best(setting, problem, found.take(own)))) for own in others)
    return tuple(dataclasses.replace(row, variants=own) for row, own in zip(rows, variants, strict=True))


def _with_variants(problem: Problem, space: StrategySpace, leaders: Best, score: Scorer) -> Best:
    """Return the leaders with the candidates of their degrees that are as good, best first; with all of them where
    fewer leaders than rows are near the best."""
    width, context, alike = problem.idea_width, space.context, 1 + ALIKE
    if np.count_nonzero(leaders.keys[0] <= (1 + FAR) * leaders.keys[0, 0]) < problem.top:
        alike = math.inf
    place_of = {int(index) // width: place for place, index in enumerate(leaders.index)}
    ideas = np.array(sorted(place_of), dtype=np.int64)
    tables = [space.below_degrees(ideas[start : start + IDEAS]) for start in range(0, len(ideas), IDEAS)]
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
    """Return the places in ``found`` of the rows, each followed by those of its variants."""
    step_s, peak = found.scores.step_time_s, found.scores.peak_memory_bytes

    def beaten(place: int, other: int) -> bool:
        """Return whether another is as fast and only needs more memory."""
        return bool(step_s[place] <= step_s[other] <= (1 + ALIKE) * step_s[place] and peak[place] <= peak[other])

    kinds = zip(*(digit.tolist() for digit in _digits(space, found.index)), strict=True)
    ideas = (found.index // problem.idea_width).tolist()
    return _shown(list(zip(ideas, kinds, strict=True)), found.keys[0], problem.top, beaten)


def _shown(
    kinds: Sequence[tuple[Hashable, Hashable]],
    keys: Sequence[float],
    top: int,
    beaten: Callable[[int, int], bool] = lambda place, other: False,
) -> list[list[int]]:
    """Return the rows that are shown of candidates in rank order, each followed by its variants, as places.

    ``kinds``: the idea of each, and its choices on ``KINDS``; ``keys``: its first ranking key; ``beaten``: whether one
    place is a variant of another that leads its idea though it ranks further behind. First comes the best of every idea
    that is near the best of all; then whatever is next, another strategy of such an idea or the best of one far off.
    """
    ideas: dict[Hashable, list[list[int]]] = {}
    seen = set[tuple[Hashable, Hashable]]()
    for place, (idea, kind) in enumerate(kinds):
        rows = ideas.setdefault(idea, [])
        if rows and (keys[place] <= (1 + ALIKE) * keys[rows[-1][0]] or beaten(rows[-1][0], place)):
            rows[-1].append(place)
        elif (idea, kind) not in seen:
            rows.append([place])
        seen.add((idea, kind))
    near = [rows[0] for rows in ideas.values() if keys[rows[0][0]] <= (1 + FAR) * keys[0]]
    further = sorted(row for rows in ideas.values() for row in rows if row not in near)
    return sorted([*near, *further[: max(top - len(near), 0)]])[:top]


def _digits(space: StrategySpace, index: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the digits of N candidates on ``KINDS``, shape N each."""
    sizes = [len(space.choices[axis]) for axis in AXES]
    return [index // math.prod(sizes[AXES.index(axis) + 1 :]) % sizes[AXES.index(axis)] for axis in KINDS]


def variant_of(row: Row) -> Variant:
    """Return a row as a variant of another."""
    return Variant(
        strategy=row.strategy,
        step_time_s=row.step_time_s,
        peak_memory_gib=row.peak_memory_gib,
        oom_risk=row.oom_risk,
    )


def folded(ranked: Iterable[tuple[Strategy, float]], top: int) -> Iterator[tuple[Strategy, list[Strategy]]]:
    """Fold strategies, best first with their first ranking key, to those of each set of degrees with what is as good;
    ``top`` of them."""
    known = list(ranked)
    kinds = [(degrees(one), tuple(int(getattr(one, axis)) for axis in KINDS)) for one, _ in known]
    for leader, *variants in _shown(kinds, [key for _, key in known], top):
        yield known[leader][0], [known[place][0] for place in variants[:MOST_VARIANTS]]


def degrees(strategy: Strategy) -> tuple[int, ...]:
    """Return what makes a strategy an idea of its own."""
    return (strategy.devices, strategy.pp, strategy.tp, strategy.cp, strategy.ep, strategy.etp, strategy.second_tp or 0)
