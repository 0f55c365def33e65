"""Order of the best rows of a search after an event-level simulation."""

import dataclasses

import numpy as np

from forerun.search.answer.leaderboard import with_rows
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import AnyRow, closed_form_mark, rows_from
from forerun.search.order.objectives import objective_named
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.kinds import kind_of
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.scorer import OnProgress
from forerun.search.request.setting import Setting
from forerun.simulator.score_table import ScoreTable, joined


def refine(
    board: Leaderboard, setting: Setting[AnyContext], top: int, on_progress: OnProgress | None = None
) -> Leaderboard:
    """Return the best ``top`` rows of a board after an event-level simulation of all rows (10 to 500 ms each).

    Rows have event-level times and memory, marks with their former ranks, and ``notes`` state the loss of the former
    first row. Rows that do not fit at the event level are last.

    Raises
    ------
    RequestError
        See ``event_scores``.
    EndedEarly
        Interrupted, with the first ``top`` rows unchanged.
    """
    if not board.rows:
        return board
    strategies = [row.strategy for row in board.rows]
    kind = kind_of(setting.context)
    simulated: list[ScoreTable] = []
    try:
        for strategy in strategies:
            if on_progress is not None:
                on_progress("simulating the best rows", len(simulated), len(strategies), "")
            simulated.append(kind.event_scores(setting.context, kind.table(setting.context, [strategy])))
    except KeyboardInterrupt as stop:
        remark = f"interrupted after {len(simulated)} of {len(strategies)} simulations: the order of the closed forms"
        as_found = dataclasses.replace(board, rows=board.rows[:top], remarks=(*board.remarks, remark))
        raise EndedEarly(as_found, stop) from None
    table, scores = kind.table(setting.context, strategies), joined(simulated, np.arange(len(strategies)))
    places = objective_named(setting.objective).order(setting.context, scores, table)
    rows = rows_from(setting.context, strategies, scores, usd_per_gpu_hour=setting.usd_per_gpu_hour)
    played = tuple(dataclasses.replace(row, facts=old.facts) for row, old in zip(rows, board.rows, strict=True))
    rows = tuple(_moved(played[place], place + 1) for place in places)
    board = dataclasses.replace(board, remarks=(*board.remarks, _verdict(board.rows, played, rows[0])))
    return with_rows(board, setting, rows, top=top)


def _moved(row: AnyRow, place: int) -> AnyRow:
    """Return a row with its rank by closed forms."""
    return dataclasses.replace(row, marks=(*row.marks, closed_form_mark(place)))


def _verdict(before: tuple[AnyRow, ...], played: tuple[AnyRow, ...], best: AnyRow) -> str:
    """Describe the agreement of the two levels."""
    change = max(abs(old.step_time_s / new.step_time_s - 1) for old, new in zip(before, played, strict=True))
    lost = best.throughput_per_gpu / played[0].throughput_per_gpu - 1
    text = f"the best {len(before)} were simulated event by event: step times differ by {change:.1%} at most"
    return text if lost <= 0 else f"{text}; the first row by closed forms takes {lost:.1%} more GPU time"
