"""One leaderboard of searches in several precisions, each row with its precision."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from heapq import merge

from forerun.search.answer.diagnosis.no_answer import NoAnswer
from forerun.search.board.leaderboard import NEAR, NEAR_MARK, Leaderboard, ranked
from forerun.search.board.rows import AnyRow
from forerun.search.order.first_row import undominated_first
from forerun.search.order.ideas import AT_ONCE, chosen_together
from forerun.search.order.objectives import objective_named
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.kinds import TRANSFORMERS, kind_named
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting, of_transformer
from forerun.simulator import score
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import table_of
from forerun.spaces.units import format_seconds, format_whole
from forerun.spaces.workload import check_precision

Key = tuple[float, ...]


def settings_by_precision(request: Request, precisions: Sequence[str]) -> dict[str, Setting[AnyContext]]:
    """Resolve a request once for each of several precisions.

    Raises
    ------
    RequestError
        A precision is unknown or named twice, the device lacks one, or the request supports a single precision only.
    """
    if request.objective is not None and objective_named(request.objective).front:
        raise RequestError("a front of several objectives is searched in one precision; give one --precision")
    if kind_named(request.model) is not TRANSFORMERS:
        raise RequestError(f"several precisions are searched for transformers, and {request.model} is none; give one")
    settings = {}
    for precision in precisions:
        check_precision(precision)
        setting = resolve(dataclasses.replace(request, precision=precision))
        settings[of_transformer(setting).context.workload.precision] = setting
    if len(settings) < len(precisions):
        raise RequestError(f"--precision names each precision once, but got {','.join(precisions)}")
    return settings


def search_precisions(
    settings: Mapping[str, Setting[AnyContext]], search: Callable[[Setting[AnyContext]], Leaderboard]
) -> Leaderboard:
    """Search each setting, and rank the rows of all together.

    Parameters
    ----------
    settings
        One setting for each precision.
    search
        The search of one setting.

    Returns
    -------
    Leaderboard
        Leaderboard of the first row's precision, with its notes and reasons, and the rows of all.

    Raises
    ------
    NoAnswer
        No precision has a feasible strategy; the error of the last one.
    EndedEarly
        The search was interrupted; it has the leaderboard so far.
    """
    boards, without, end = _boards(settings, search)
    board = _joined(settings, boards, without)
    if end is not None:
        raise EndedEarly(board, end)
    return board


def _boards(
    settings: Mapping[str, Setting[AnyContext]], search: Callable[[Setting[AnyContext]], Leaderboard]
) -> tuple[dict[str, Leaderboard], list[str], EndedEarly | None]:
    """Return the leaderboards by precision, remarks on precisions without one, and the interrupt, if any."""
    boards: dict[str, Leaderboard] = {}
    without: list[str] = []
    for precision, setting in settings.items():
        try:
            boards[precision] = search(dataclasses.replace(setting, top=chosen_together(setting.top)))
        except EndedEarly as stop:
            if isinstance(stop.found, Leaderboard):
                boards[precision] = stop.found
            elif not boards:
                raise
            return boards, without, stop
        except NoAnswer:
            without.append(f"in {precision} nothing fits")
            if len(without) == len(settings):
                raise
    return boards, without, None


def _joined(
    settings: Mapping[str, Setting[AnyContext]], boards: Mapping[str, Leaderboard], without: Sequence[str]
) -> Leaderboard:
    """Return one leaderboard from those of several precisions."""
    preferred = next(iter(settings))
    keyed = [_keyed(settings[precision], board, precision == preferred) for precision, board in boards.items()]
    merged = [row for _, row in merge(*keyed, key=lambda entry: entry[0])]
    rows = [*_first_undominated(merged[:AT_ONCE]), *merged[AT_ONCE:]]
    first = rows[0].precision
    assert first is not None
    board, setting = boards[first], settings[first]
    rows = list(ranked(tuple(rows[: setting.top]), setting.objective))
    gains = [_gain(rows[0], other.rows[0], precision) for precision, other in boards.items() if precision != first]
    sizes = [f"{format_whole(other.space.size)} in {precision}" for precision, other in boards.items()]
    return dataclasses.replace(
        board,
        rows=tuple(rows),
        request={**board.request, "top": setting.top, "precisions": list(settings)},
        warnings=tuple(dict.fromkeys(text for other in boards.values() for text in other.warnings)),
        remarks=(*board.remarks, *gains, *without, f"candidates by precision: {', '.join(sizes)}"),
        elapsed_s=sum(other.elapsed_s for other in boards.values()),
    )


def _keyed(setting: Setting[AnyContext], board: Leaderboard, preferred: bool) -> list[tuple[Key, AnyRow]]:
    """Return the rows of a board, in order, each with its ranking keys across boards.

    In rankings by time, the ``preferred`` precision ranks first within the prediction error.
    """
    context = of_transformer(setting).context
    table = table_of([row.strategy for row in board.rows])
    keys = objective_named(setting.objective).keys(context, score(context, table), table)
    marks = [tuple(mark for mark in row.marks if mark != NEAR_MARK) for row in board.rows]
    precision = context.workload.precision
    rows = [
        dataclasses.replace(row, precision=precision, marks=row_marks, same_as_rank=None)
        for row, row_marks in zip(board.rows, marks, strict=True)
    ]
    factor = 1.0 if preferred or setting.objective not in ("throughput", "cost") else 1.0 + NEAR
    return [(tuple(factor * float(key[place]) for key in keys), row) for place, row in enumerate(rows)]


def _first_undominated(rows: list[AnyRow]) -> list[AnyRow]:
    order = undominated_first([row.gpus * row.step_time_s for row in rows], [row.oom_risk for row in rows])
    return [rows[place] for place in order]


def _gain(first: AnyRow, other: AnyRow, precision: str) -> str:
    gain = 1 - first.gpus * first.step_time_s / (other.gpus * other.step_time_s)
    amount = f"{gain:.0%} less GPU time a step than" if gain >= NEAR else "as much GPU time a step, within 1%, as"
    step = format_seconds(other.step_time_s)
    return f"{first.precision} takes {amount} the best row in {precision}: {other.name} {precision}, {step}"
