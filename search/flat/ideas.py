"""Ideas and their variants: strategies with the same degrees, of which a leaderboard shows the best.

Placements, virtual stages and micro-batches of one set of degrees often lie closer together than a prediction's error;
ten rows of them would be one row ten times.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from forerun.search.board.rows import Row, rows_of
from forerun.search.board.variants import Variant
from forerun.search.flat.candidates import strategies_at
from forerun.search.flat.exhaustive import CHUNK, Best, Problem, chunks_of, interrupted, slices
from forerun.search.request.objectives import objective_named
from forerun.search.request.preferences import FAILED_START
from forerun.search.request.request import Setting
from forerun.search.request.scorer import Scorer
from forerun.spaces.strategies import AXES, Strategy, StrategySpace

ALIKE = 0.01
"""Variants whose first ranking key is this close to their row's are kept with it: below any prediction's error."""
FAR = 0.25
"""Ideas whose first ranking key is this much above that of the best are slower beyond any doubt: four of five measured
runs lie within 20 % of their prediction. Other strategies of better ideas go before them."""
KINDS = ("mbs", "zero", "sp")
"""Axes of which every choice may make a row where an idea has several: who changes another is after a few per cent."""
MOST_VARIANTS = 100

Ranked = tuple[tuple[float, ...], int]
"""Ranking keys of a candidate, and its index."""


def flat_rows(setting: Setting, problem: Problem, best: Best, score: Scorer) -> tuple[Row, ...]:
    """Return the rows of what an exhaustive search found, each with its variants where those were folded."""
    if not problem.ideas:
        leaders = strategies_at(problem.space, best.index[: problem.top])
        return rows_with_variants(setting, leaders, [()] * len(leaders), score)
    found = _with_further(_variants(problem, best, score), problem.top, _kinds(problem.space))
    leaders = strategies_at(problem.space, (first for (_, first), *_ in found))
    variants = [strategies_at(problem.space, (index for _, index in others[:MOST_VARIANTS])) for _, *others in found]
    return rows_with_variants(setting, leaders, variants, score)


def _variants(problem: Problem, best: Best, score: Scorer) -> list[list[Ranked]]:
    """Return each of the best, followed by the candidates with its degrees that are as good, best first; by all of them
    where fewer ideas than rows are near the best."""
    width, context, alike = problem.idea_width, problem.space.context, 1 + ALIKE
    if np.count_nonzero(best.keys[0] <= (1 + FAR) * best.keys[0, 0]) < problem.top:
        alike = math.inf
    leaders = {int(index) // width: place for place, index in enumerate(best.index[: problem.top])}
    found: list[list[Ranked]] = [[] for _ in leaders]
    lows = [idea * width for idea in sorted(leaders)]
    tables = [table for low in lows for _, table, _ in slices(problem.space, low, low + width)]
    for table in chunks_of(tables, CHUNK):
        scores = interrupted(score(context, table), table, problem.slowdown)
        kept, _ = problem.limits.kept(scores, table)
        keys = np.stack(objective_named(problem.objective).keys(context, scores, table))
        places = np.array([leaders[idea] for idea in (table.index // width).tolist()])
        near = kept & (keys[0] <= alike * best.keys[0, places])
        for row in np.flatnonzero(near):
            found[places[row]].append(((*keys[:, row],), int(table.index[row])))
    return [sorted(one) for one in found]


def _with_further(ideas: Sequence[Sequence[Ranked]], top: int, kinds: Callable[[int], object]) -> list[list[Ranked]]:
    """Return ``top`` rows, each followed by those of its degrees that are as good: the best of every idea that is near
    the best of all; then whatever is next, another strategy of such an idea or the best of one that is far off.
    ``kinds`` maps an index to what an idea has one row of."""
    near, next_best = list[list[Ranked]](), list[list[Ranked]]()
    for ranked in ideas:
        rows: list[list[Ranked]] = []
        seen = set[object]()
        for keys, index in ranked:
            if rows and keys[0] <= (1 + ALIKE) * rows[-1][0][0][0]:
                rows[-1].append((keys, index))
            elif kinds(index) not in seen:
                rows.append([(keys, index)])
            seen.add(kinds(index))
        is_near = int(rows[0][0][0][0] <= (1 + FAR) * ideas[0][0][0][0])
        near += rows[:is_near]
        next_best += rows[is_near:]
    return sorted([*near, *sorted(next_best)[: top - len(near)]])


def _kinds(space: StrategySpace) -> Callable[[int], tuple[int, ...]]:
    """Return what maps an index of a space to its digits on ``KINDS``."""
    sizes = {axis: len(space.choices[axis]) for axis in AXES}
    digits = [(math.prod(sizes[after] for after in AXES[AXES.index(axis) + 1 :]), sizes[axis]) for axis in KINDS]
    return lambda index: tuple(index // stride % size for stride, size in digits)


def rows_with_variants(
    setting: Setting, leaders: Sequence[Strategy], variants: Sequence[Sequence[Strategy]], score: Scorer
) -> tuple[Row, ...]:
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


def best_rows(setting: Setting, problem: Problem, bests: Iterable[Best | None], score: Scorer) -> list[Row | None]:
    """Return the first row of each, None where there is none."""
    found = [strategies_at(problem.space, best.index[:1]) if best is not None else () for best in bests]
    return [next(iter(_rows(setting, strategies, score)), None) for strategies in found]


def _rows(setting: Setting, strategies: Sequence[Strategy], score: Scorer) -> tuple[Row, ...]:
    return rows_of(setting.context, strategies, usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score)
