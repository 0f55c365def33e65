"""Ideas and their variants: strategies with the same degrees, of which a leaderboard shows the best.

Placements, virtual stages and micro-batches of one set of degrees often lie closer together than a prediction's error;
ten rows of them would be one row ten times.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from forerun.search.board.rows import Row, rows_of
from forerun.search.board.variants import Variant
from forerun.search.flat.exhaustive import CHUNK, Best, Problem, chunks_of, interrupted, slices
from forerun.search.request.kinds import kind_of
from forerun.search.request.objectives import objective_named
from forerun.search.request.preferences import FAILED_START
from forerun.search.request.request import Setting
from forerun.search.request.scorer import Scorer
from forerun.spaces.strategies import Strategy

ALIKE = 0.01
"""Variants whose first ranking key is this close to their row's are kept with it: below any prediction's error."""
MOST_VARIANTS = 100


def flat_rows(setting: Setting[Any], problem: Problem, best: Best, score: Scorer) -> tuple[Row[Any], ...]:
    """Return the rows of what an exhaustive search found, each with its variants where those were folded."""
    leaders = kind_of(setting.context).strategies(problem.space, best.index[: setting.top])
    variants = _variants(problem, best, score) if problem.ideas else [()] * len(leaders)
    return rows_with_variants(setting, leaders, variants, score)


def _variants(problem: Problem, best: Best, score: Scorer) -> list[tuple[Strategy, ...]]:
    """Return, for each of the best, the candidates with its degrees that are as good, best first."""
    width, context = problem.idea_width, problem.space.context
    leaders = {int(index) // width: place for place, index in enumerate(best.index[: problem.top])}
    kind, found = kind_of(context), list[list[tuple[tuple[float, ...], int]]]([] for _ in leaders)
    lows = [idea * width for idea in sorted(leaders)]
    tables = [table for low in lows for _, table, _ in slices(problem.space, low, low + width)]
    for table in chunks_of(tables, CHUNK):
        scores = interrupted(score(context, table), table, problem.slowdown)
        kept, _ = problem.limits.kept(scores, table)
        keys = np.stack(objective_named(problem.objective).keys(context, scores, table))
        places = np.array([leaders[idea] for idea in (table.index // width).tolist()])
        near = kept & (keys[0] <= (1 + ALIKE) * best.keys[0, places]) & (table.index != best.index[places])
        for row in np.flatnonzero(near):
            found[places[row]].append(((*keys[:, row],), int(table.index[row])))
    indices = [np.array([index for _, index in sorted(one)[:MOST_VARIANTS]], dtype=np.int64) for one in found]
    return [kind.strategies(problem.space, own) for own in indices]


def rows_with_variants(
    setting: Setting[Any], leaders: Sequence[Any], variants: Sequence[Sequence[Any]], score: Scorer
) -> tuple[Row[Any], ...]:
    """Return the rows of some strategies, each with its own variants."""
    rows = iter(_rows(setting, [*leaders, *itertools.chain(*variants)], score))
    first = list(itertools.islice(rows, len(leaders)))
    return tuple(
        dataclasses.replace(row, variants=tuple(map(variant_of, itertools.islice(rows, len(own)))))
        for row, own in zip(first, variants, strict=True)
    )


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


def best_rows(
    setting: Setting[Any], problem: Problem, bests: Iterable[Best | None], score: Scorer
) -> list[Row[Any] | None]:
    """Return the first row of each, None where there is none."""
    kind = kind_of(setting.context)
    found = [kind.strategies(problem.space, best.index[:1]) if best is not None else () for best in bests]
    return [next(iter(_rows(setting, strategies, score)), None) for strategies in found]


def _rows(setting: Setting[Any], strategies: Sequence[Any], score: Scorer) -> tuple[Row[Any], ...]:
    return rows_of(setting.context, strategies, usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score)
