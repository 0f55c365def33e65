"""Flat search of a request: the problem that workers solve, and the rows of its solution."""

from typing import Any

from forerun.search.board.found import Alternatives, Found
from forerun.search.board.leaderboard import SpaceCounts
from forerun.search.board.rows import Row
from forerun.search.explore.flat.best import first_row
from forerun.search.explore.flat.bound import SLOWER
from forerun.search.explore.flat.exhaustive import Problem, SliceResult
from forerun.search.explore.flat.families import best_of_families
from forerun.search.explore.flat.marginal_gpus import paying
from forerun.search.explore.flat.variants import flat_rows
from forerun.search.order.ideas import chosen_together
from forerun.search.order.objectives import objective_named
from forerun.search.request.kinds import kind_of
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting, has_transformer
from forerun.simulator import score as simulator_score


def problem_of(setting: Setting[AnyContext]) -> Problem:
    """Return the search problem of a setting."""
    kind, space = kind_of(setting.context), setting.space()
    folded = has_transformer(setting) and not (setting.request.all_variants or objective_named(setting.objective).front)
    return Problem(
        space=space,
        objective=setting.objective,
        top=kind.kept(space, chosen_together(setting.top) if folded else setting.top),
        limits=setting.limits,
        ideas=folded,
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
    whole = len(piece.best)
    shown = f"Pareto front: {whole:,} strategies" + (f", {len(rows):,} of them kept" if len(rows) < whole else "")
    return shown, *filter(None, (paying(rows) if len(rows) == whole else "",))
