"""The verbs of the command line as functions of Python values."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from forerun.search.board.leaderboard import Leaderboard, SpaceCounts
from forerun.search.board.rows import Row, rows_of
from forerun.search.build import Found, build_board
from forerun.search.flat.best import first_row
from forerun.search.flat.bound import SLOWER
from forerun.search.flat.exhaustive import Problem, SliceResult
from forerun.search.flat.ideas import flat_rows
from forerun.search.notes.all_notes import Beside
from forerun.search.notes.intervals import certain
from forerun.search.notes.marginal_gpus import paying
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.kinds import TRANSFORMERS, kind_of
from forerun.search.request.limits import TOO_DEAR, TOO_LATE
from forerun.search.request.model_kind import AnyStrategy
from forerun.search.request.objectives import objective_named
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.scorer import Progress, Scorer
from forerun.search.request.setting import Setting, legal_strategy
from forerun.search.workers import IN_THIS_PROCESS, Choice
from forerun.search.workers.slicing import search_with
from forerun.simulator import score as simulator_score
from forerun.spaces.errors import ForerunError
from forerun.spaces.strategies import Strategy

if TYPE_CHECKING:
    from forerun.search.explain.explain import Explanation


def search(
    model: str,
    *,
    progress: Progress | None = None,
    score: Scorer = simulator_score,
    workers: Choice | None = None,
    **fields: Any,
) -> Leaderboard:
    """Search the best strategies for a model; ``fields`` are those of ``Request``. See ``search_request``.

    >>> search("llama3-8b", cluster="dgx-h100", gpus=64, global_batch=256, seq_len=8192).rows[0].gpus
    64

    Raises:
        RequestError: the request is wrong.
        NothingFeasible: nothing fits; the error says what would.
    """
    if "gpus" in fields and fields["gpus"] is not None:
        fields["gpus"] = str(fields["gpus"])
    return search_request(Request(model=model, **fields), progress=progress, score=score, workers=workers)


def search_request(
    request: Request | Setting[Any],
    *,
    started: Callable[[int], None] | None = None,
    progress: Progress | None = None,
    sampling: Progress | None = None,
    score: Scorer = simulator_score,
    workers: Choice | None = None,
) -> Leaderboard:
    """Search what a request asks for; ``started`` is told the size of the space before ``progress`` is called, and
    ``sampling`` how many of how many parts of a sample of it are done.

    ``workers`` says who does the work; None: this process. ``Choice()`` goes on in other processes where that takes
    long, for which a script needs ``if __name__ == "__main__":``. The rows do not depend on it.

    Raises:
        RequestError: the request is wrong, or its own restrictions leave no legal candidate.
        NothingFeasible: nothing fits; the error says what would.
        BeyondLimits: what fits takes too long or costs too much.
        EndedEarly: with the leaderboard of what was searched by then.
    """
    started_s = time.perf_counter()
    setting = resolve(request)
    problem = problem_of(setting)
    if started is not None:
        started(problem.space.size)
    piece: SliceResult | None = None
    try:
        piece, who, remarks = search_with(
            problem, workers or IN_THIS_PROCESS, score=score, progress=progress, sampling=sampling
        )
        return leaderboard_of(setting, piece, started_s=started_s, workers=who, remarks=remarks, score=score)
    except KeyboardInterrupt as stop:
        found = getattr(stop, "found", piece)
        if isinstance(found, Leaderboard) or found is None or found.best is None or not len(found.best):
            raise
        told = f"interrupted after {found.enumerated:,} of {problem.space.size:,} candidates: the best so far"
        board = leaderboard_of(setting, found, started_s=started_s, remarks=(told,), score=score, noted=False)
        raise EndedEarly(board, stop) from None


def problem_of(setting: Setting[Any]) -> Problem:
    """Return what workers need to know of a setting."""
    kind, space = kind_of(setting.context), setting.space()
    folded = kind is TRANSFORMERS and not (setting.request.all_variants or objective_named(setting.objective).front)
    return Problem(
        space=space,
        objective=setting.objective,
        top=kind.kept(space, setting.top),
        limits=setting.limits,
        ideas=folded,
        slowdown=setting.slowdown(),
    )


def leaderboard_of(
    setting: Setting[Any],
    piece: SliceResult,
    *,
    started_s: float | None = None,
    workers: str = "in this process",
    remarks: tuple[str, ...] = (),
    score: Scorer = simulator_score,
    noted: bool = True,
) -> Leaderboard:
    """Return the leaderboard of a space that was searched whole; ``piece`` is what was found, whoever found it.

    ``noted``: with notes that take searches of their own.

    Raises:
        RequestError: the request's own restrictions leave no legal candidate.
        NothingFeasible: nothing fits; the error says what would.
        BeyondLimits: what fits takes too long or costs too much.
    """
    problem, rows, families = problem_of(setting), tuple[Row[Any], ...](), tuple[Row[Any], ...]()
    if piece.best is not None and len(piece.best):
        rows = flat_rows(setting, problem, piece.best, score)
        if kind_of(setting.context) is not TRANSFORMERS:
            from forerun.search.opgraph.answers import best_of_families

            families = best_of_families(setting, problem, piece.best)
    rejected = dict(sorted(piece.rejected.items(), key=lambda item: (-item[1], item[0])))
    found = Found(
        rows=rows,
        space=SpaceCounts(size=piece.enumerated, legal=piece.legal, feasible=piece.feasible, rejected=rejected),
        remarks=(*remarks, *_front_remarks(setting, piece, rows)),
        workers=workers,
        beside=Beside(
            fastest=first_row(setting, problem, piece.fastest),
            safest=first_row(setting, problem, piece.safest),
            unscored=SLOWER in piece.rejected and not (piece.safest and len(piece.safest)),
        ),
        families=families,
    )
    board = build_board(setting, found, started_s=started_s or time.perf_counter(), score=score, noted=noted)
    if rows:
        return board
    raise _without_rows(setting, problem, piece, board.to_json(), score)


def _without_rows(
    setting: Setting[Any], problem: Problem, piece: SliceResult, document: dict[str, Any], score: Scorer
) -> ForerunError:
    """Return the error for a search without rows, which says what would help."""
    from forerun.search.diagnosis.diagnosis import NothingFeasible, beyond_limits, diagnose, empty_space

    if any(reason in piece.rejected for reason in (TOO_LATE, TOO_DEAR)):
        return beyond_limits(setting, score, document)
    if kind_of(setting.context) is not TRANSFORMERS:
        from forerun.search.opgraph.answers import no_split_fits

        return no_split_fits(setting, problem, piece, document)
    if not piece.legal and setting.request.overrides:
        return empty_space(setting, piece)
    return NothingFeasible(diagnose(setting, problem, piece, score), document)


def _front_remarks(setting: Setting, piece: SliceResult, rows: tuple[Row, ...]) -> tuple[str, ...]:
    """Return what is to be said about a Pareto front: how much of it is shown, and up to where GPUs pay."""
    objective = objective_named(setting.objective)
    if not objective.front or piece.best is None:
        return ()
    whole = len(piece.best)
    shown = f"Pareto front: {whole:,} strategies" + (f", {len(rows):,} of them kept" if len(rows) < whole else "")
    return shown, *filter(None, (paying(rows) if len(rows) == whole else "",))


def simulate(model: str, *, strategy: str | Strategy, score: Scorer = simulator_score, **fields: Any) -> Row:
    """Predict one strategy; ``fields`` are those of ``Request``.

    Raises:
        RequestError: the request is wrong or the strategy illegal; the message has every law it breaks.
    """
    setting = resolve(Request(model=model, **fields))
    return simulate_setting(setting, strategy, score=score)


def simulate_setting(
    setting: Setting[Any], strategy: "str | AnyStrategy", *, score: Scorer = simulator_score
) -> Row[Any]:
    """Predict one strategy, which may be given as text.

    Raises:
        RequestError: the strategy is illegal.
    """
    legal = legal_strategy(setting, strategy)
    rows = rows_of(setting.context, [legal], usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score)
    return certain(setting.context, rows)[0]


def explain(model: str, *, strategy: str | Strategy, score: Scorer = simulator_score, **fields: Any) -> "Explanation":
    """Explain one strategy and everything one axis away from it; ``fields`` are those of ``Request``.

    Raises:
        RequestError: the request is wrong or the strategy illegal, or the model is an operator graph.
    """
    from forerun.search.explain.explain import explain_strategy

    setting = resolve(Request(model=model, **fields))
    legal = legal_strategy(setting, strategy)
    return explain_strategy(setting.context, legal, usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score)
