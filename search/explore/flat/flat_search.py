"""Flat search of a request: the problem that workers solve, and the rows of its solution."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.search.board.found import Alternatives, Found
from forerun.search.board.leaderboard import SpaceCounts
from forerun.search.board.rows import Row
from forerun.search.explore.flat.best import first_row, rows_of_best
from forerun.search.explore.flat.bound import SLOWER
from forerun.search.explore.flat.exhaustive import Best, Problem, SliceResult
from forerun.search.explore.flat.variants import flat_rows
from forerun.search.order.ideas import chosen_together
from forerun.search.order.objectives import objective_named
from forerun.search.request.kinds import kind_of
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting, has_transformer
from forerun.simulator import score as simulator_score
from forerun.spaces.strategies import StrategySpace

if TYPE_CHECKING:
    from forerun.spaces.opgraph.split import Split


PAYS = 0.5
"""Least gain per added GPU, as a share of the gain per GPU of the smallest row."""


def paying(rows: Sequence[Row]) -> str:
    """Describe the number of GPUs up to which another GPU pays; empty if all rows have the same number."""
    best: dict[int, float] = {}
    for row in rows:
        best[row.gpus] = max(row.throughput, best.get(row.gpus, 0.0))
    counts = sorted(best)
    if len(counts) < 2:
        return ""
    each, last = best[counts[0]] / counts[0], counts[0]
    for below, above in pairwise(counts):
        gained = (best[above] - best[below]) / (above - below)
        if gained < PAYS * each:
            return (
                f"beyond {last:,} GPUs the gain per GPU is below half: from {below:,} to {above:,} each one adds "
                f"{gained / each:.0%} of the throughput per GPU on {counts[0]:,}"
            )
        last = above
    return f"GPUs still add over half of their share of throughput at the largest number searched ({last:,})"


def best_of_families(setting: Setting[AnyContext], problem: Problem, best: Best) -> "tuple[Row[Split], ...]":
    """Return the best row of every family of splits with its rank; none for a transformer."""
    if isinstance(problem.space, StrategySpace):
        return ()
    first: dict[str, int] = {}
    for place, split in enumerate(problem.space.strategies(best.index)):
        first.setdefault(split.family, place)
    places = list(first.values())
    rows = rows_of_best(setting, problem, best.take(np.array(places)))
    return tuple(replace(row, rank=place + 1) for row, place in zip(rows, places, strict=True))


def problem_of(setting: Setting[AnyContext]) -> Problem:
    """Return the search problem of a setting."""
    kind, space = kind_of(setting.context), setting.space()
    front = objective_named(setting.objective).front
    return Problem(
        space=space,
        objective=setting.objective,
        top=kind.kept(space, setting.top if front else chosen_together(setting.top)),
        limits=setting.limits,
        ideas=has_transformer(setting) and not (setting.request.all_variants or front),
        slowdown=setting.slowdown(),
    )


def found_in(
    setting: Setting[AnyContext],
    piece: SliceResult,
    *,
    workers: str = "in this process",
    remarks: tuple[str, ...] = (),
    score: Scorer = simulator_score,
    problem: Problem | None = None,
) -> Found:
    """Return the rows of a completely searched space.

    ``score``: scorer of variants; ``problem``: problem of the setting, if already built.
    """
    problem, rows, families = problem or problem_of(setting), tuple[Row[Any], ...](), tuple[Row[Any], ...]()
    if piece.best is not None and len(piece.best):
        rows = flat_rows(setting, problem, piece.best, score)
        families = best_of_families(setting, problem, piece.best)
    return Found(
        rows=rows,
        space=counts_of(piece),
        remarks=(*remarks, *_front_remarks(setting, piece, rows)),
        workers=workers,
        alternatives=Alternatives(
            fastest=first_row(setting, problem, piece.fastest),
            safest=first_row(setting, problem, piece.safest),
            unscored=SLOWER in piece.rejected and not (piece.safest and len(piece.safest)),
        ),
        families=families,
        closest=None if rows else first_row(setting, problem, piece.closest),
    )


def counts_of(piece: SliceResult) -> SpaceCounts:
    """Count the candidates of a search, rejected ones by reason, most first."""
    rejected = dict(sorted(piece.rejected.items(), key=lambda item: (-item[1], item[0])))
    return SpaceCounts(size=piece.enumerated, legal=piece.legal, feasible=piece.feasible, rejected=rejected)


def _front_remarks(setting: Setting[AnyContext], piece: SliceResult, rows: tuple[Row, ...]) -> tuple[str, ...]:
    """Describe a Pareto front: its share that is shown, and the number of GPUs up to which more GPUs pay."""
    objective = objective_named(setting.objective)
    if not objective.front or piece.best is None:
        return ()
    count = len(piece.best)
    shown = f"Pareto front: {count:,} strategies" + (f", {len(rows):,} of them kept" if len(rows) < count else "")
    return shown, *filter(None, (paying(rows) if len(rows) == count else "",))
