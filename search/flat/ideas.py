"""Ideas and their variants: strategies with the same degrees, of which a leaderboard shows the best.

Placements, virtual stages and micro-batches of one set of degrees often lie closer together than a prediction's error;
ten rows of them would be one row ten times.
"""

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from forerun.search.board.rows import Row
from forerun.search.board.variants import Variant
from forerun.search.flat.best import rows_of_best
from forerun.search.flat.exhaustive import CHUNK, Best, Problem, chunks_of, gathered, interrupted, lowest, slices
from forerun.search.request.objectives import objective_named
from forerun.search.request.preferences import FAILED_START
from forerun.search.request.request import Setting
from forerun.search.request.scorer import Scorer
from forerun.spaces.strategies import Strategy

ALIKE = 0.01
"""Variants whose first ranking key is this close to their row's are kept with it: below any prediction's error."""
MOST_VARIANTS = 100


def flat_rows(setting: Setting, problem: Problem, best: Best, score: Scorer) -> tuple[Row, ...]:
    """Return the rows of what an exhaustive search found, each with its variants where those were folded."""
    shown = best.take(np.arange(min(len(best), problem.top)))
    rows = rows_of_best(setting, problem, shown)
    if not problem.ideas:
        return rows
    found = _variants(problem, shown, score)
    variants = (tuple(map(variant_of, rows_of_best(setting, problem, own))) for own in found)
    return tuple(dataclasses.replace(row, variants=own) for row, own in zip(rows, variants, strict=True))


def _variants(problem: Problem, leaders: Best, score: Scorer) -> list[Best]:
    """Return, for each leader, the candidates with its degrees that are as good, best first."""
    width, context = problem.idea_width, problem.space.context
    place_of = {int(index) // width: place for place, index in enumerate(leaders.index)}
    lows = [idea * width for idea in sorted(place_of)]
    tables = [table for low in lows for _, table, _ in slices(problem.space, low, low + width)]
    others = [table.take(np.flatnonzero(~np.isin(table.index, leaders.index))) for table in tables]
    near: list[Best] = []
    for table in chunks_of(others, CHUNK):
        bare = score(context, table)
        scores = interrupted(bare, table, problem.slowdown)
        kept, _ = problem.limits.kept(scores, table)
        keys = np.stack(objective_named(problem.objective).keys(context, scores, table))
        places = np.array([place_of[idea] for idea in (table.index // width).tolist()])
        alike = kept & (keys[0] <= (1 + ALIKE) * leaders.keys[0, places])
        near.append(Best(index=table.index, keys=keys, scores=bare).take(np.flatnonzero(alike)))
    none = leaders.take(np.arange(0))
    found = gathered([none, *near])
    return [lowest(found, found.index // width == index // width, MOST_VARIANTS) for index in leaders.index]


def worth_s(row: Row) -> float:
    """Return the seconds of a row's step with what failed starts cost, preferences left aside."""
    return row.step_time_s * (1.0 + FAILED_START * row.oom_risk / (1.0 - row.oom_risk))


def variant_of(row: Row) -> Variant:
    """Return a row as a variant of another."""
    return Variant(
        strategy=row.strategy,
        step_time_s=row.step_time_s,
        peak_memory_gib=row.peak_memory_gib,
        oom_risk=row.oom_risk,
    )


def folded(ranked: Iterable[tuple[Strategy, float]], top: int) -> Iterator[tuple[Strategy, list[Strategy]]]:
    """Fold strategies, best first with their first ranking key, to the best of each set of degrees with what is as
    good; ``top`` of them."""
    leaders: dict[tuple[int, ...], tuple[Strategy, float, list[Strategy]]] = {}
    for strategy, key in ranked:
        leader = leaders.get(degrees(strategy))
        if leader is None and len(leaders) < top:
            leaders[degrees(strategy)] = (strategy, key, [])
        elif leader is not None and key <= (1 + ALIKE) * leader[1] and len(leader[2]) < MOST_VARIANTS:
            leader[2].append(strategy)
    return ((strategy, variants) for strategy, _, variants in leaders.values())


def degrees(strategy: Strategy) -> tuple[int, ...]:
    """Return what makes a strategy an idea of its own."""
    return (strategy.devices, strategy.pp, strategy.tp, strategy.cp, strategy.ep, strategy.etp, strategy.second_tp or 0)
