"""Leaderboards of all searches: flat, stages that differ, and groups of nodes."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from forerun.search.answer.leaderboard import build_board
from forerun.search.board.found import Found
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.explore.flat.exhaustive import Problem, SliceResult
from forerun.search.explore.flat.flat_search import found_in, problem_of
from forerun.search.explore.flat.slicing import search_with
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.limits import TOO_DEAR, TOO_LATE
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.scorer import OnProgress, Progress, Scorer
from forerun.search.request.setting import Setting, has_transformer, of_operator_graph, of_transformer
from forerun.search.workers import IN_THIS_PROCESS, Choice
from forerun.simulator import score as simulator_score
from forerun.spaces.errors import ForerunError, RequestError

if TYPE_CHECKING:
    from forerun.search.explore.samplers.registry import Exploring


def search_request(
    request: Request | Setting[AnyContext],
    *,
    started: Callable[[int], None] | None = None,
    progress: Progress | None = None,
    sampling: Progress | None = None,
    score: Scorer = simulator_score,
    workers: Choice | None = None,
) -> Leaderboard:
    """Search the space of a request.

    ``started`` is called with the size of the space before ``progress``, and ``sampling`` with the finished and all
    parts of its sample.

    ``workers``: kind of workers; None: this process. ``Choice()`` continues long searches in other processes, for which
    a script needs ``if __name__ == "__main__":``. The rows do not depend on the workers.

    Raises
    ------
    RequestError
        The request is wrong, or its restrictions leave no legal candidate.
    NothingFeasible
        Nothing fits; the error names helpful changes.
    BeyondLimits
        All fitting strategies take too long or cost too much.
    EndedEarly
        Interrupted, with the leaderboard so far.
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
        return leaderboard_of(
            setting, piece, problem=problem, started_s=started_s, workers=who, remarks=remarks, score=score
        )
    except KeyboardInterrupt as stop:
        result = getattr(stop, "found", piece)
        if isinstance(result, Leaderboard) or result is None or result.best is None or not len(result.best):
            raise
        remark = f"interrupted after {result.enumerated:,} of {problem.space.size:,} candidates: the best so far"
        board = leaderboard_of(setting, result, started_s=started_s, remarks=(remark,), score=score, noted=False)
        raise EndedEarly(board, stop) from None


def leaderboard_of(
    setting: Setting[AnyContext],
    piece: SliceResult,
    *,
    problem: Problem | None = None,
    started_s: float | None = None,
    workers: str = "in this process",
    remarks: tuple[str, ...] = (),
    score: Scorer = simulator_score,
    noted: bool = True,
) -> Leaderboard:
    """Return the leaderboard of a completely searched space; ``piece``: result of the workers.

    ``problem``: problem of the setting, if already built; ``noted``: whether to add notes, which need further searches.

    Raises
    ------
    RequestError
        The request's restrictions leave no legal candidate.
    NothingFeasible
        Nothing fits; the error names helpful changes.
    BeyondLimits
        All fitting strategies take too long or cost too much.
    """
    result = found_in(setting, piece, workers=workers, remarks=remarks, score=score, problem=problem)
    board = build_board(setting, result, started_s=started_s or time.perf_counter(), score=score, noted=noted)
    if result.rows:
        return board
    raise _without_rows(setting, result, board.to_json(), score)


def _without_rows(setting: Setting[AnyContext], found: Found, document: dict[str, Any], score: Scorer) -> ForerunError:
    """Return the error for a search without rows, with helpful changes."""
    from forerun.search.answer.diagnosis.diagnosis import NothingFeasible, beyond_limits, diagnose, empty_space

    if any(reason in found.space.rejected for reason in (TOO_LATE, TOO_DEAR)):
        return beyond_limits(of_transformer(setting), score, document)
    if not has_transformer(setting):
        from forerun.search.answer.diagnosis.no_answer import no_split_fits

        return no_split_fits(of_operator_graph(setting), found, document)
    if not found.space.legal and setting.request.overrides:
        return empty_space(setting, found.space)
    return NothingFeasible(diagnose(setting, found, score), document)


def explore_request(
    request: Request | Setting[AnyContext],
    *,
    exploring: "Exploring | None" = None,
    workers: Choice | None = None,
    on_progress: OnProgress | None = None,
    score: Scorer = simulator_score,
) -> Leaderboard:
    """Search the strategies of a request, including stages that differ.

    The flat space is searched completely first (by ``workers``), so that the result is never worse than the best flat
    strategy.

    Raises
    ------
    RequestError
        The request is wrong, or the sampler does not support it.
    NothingFeasible
        Neither search found a feasible strategy.
    EndedEarly
        Interrupted, with the leaderboard so far.
    """
    from forerun.search.explore.staged.staged_search import search_stages

    started_s, setting = time.perf_counter(), resolve(request)
    if not has_transformer(setting):
        raise RequestError(f"stages that differ are searched for transformers, and {setting.request.model} is none")
    try:
        result = search_stages(setting, exploring, workers=workers, on_progress=on_progress, score=score)
    except EndedEarly as stop:
        if not isinstance(stop.found, Found):
            raise
        board = build_board(setting, stop.found, started_s=started_s, score=score, noted=False)
        raise EndedEarly(board, stop) from None
    board = build_board(setting, result, started_s=started_s, score=score)
    if result.rows:
        return board
    from forerun.search.answer.diagnosis.diagnosis import NothingFeasible, diagnose

    raise NothingFeasible(diagnose(setting, result, score), board.to_json())


def search_groups(
    request: Request | Setting,
    *,
    per_stage: tuple[str, ...] = ("layers",),
    evaluations: int | None = None,
    played: Callable[[int], None] | None = None,
) -> Leaderboard:
    """Search the strategies on all groups of nodes of a cluster; arguments: see ``group_search.search_plans``.

    Raises
    ------
    RequestError
        The request is wrong, or contains options that groups do not support.
    InfeasibleError
        No plan fits on the groups.
    """
    from forerun.search.explore.groups.group_search import group_setting, search_plans
    from forerun.search.explore.groups.simulated_plans import EVALUATIONS

    started_s, setting = time.perf_counter(), group_setting(request, per_stage)
    result = search_plans(setting, per_stage=per_stage, evaluations=evaluations or EVALUATIONS, played=played)
    return build_board(setting, result, started_s=started_s)
