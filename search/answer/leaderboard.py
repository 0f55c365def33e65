"""Leaderboard from the rows of any kind of search."""

import time
from collections.abc import Sequence
from dataclasses import replace

from forerun.search.answer.explain.why import why
from forerun.search.answer.intervals import certain
from forerun.search.answer.notes.all_notes import notes_for
from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.notes.faster import lower_because
from forerun.search.answer.notes.goodput import with_goodput
from forerun.search.board.found import Alternatives, Found
from forerun.search.board.leaderboard import Leaderboard, ranked
from forerun.search.board.rows import AnyRow, Row
from forerun.search.files.documents import versions
from forerun.search.formats.launchable import marked, none_launched, unlaunched
from forerun.search.order.first_row import launchable_first, undominated_first
from forerun.search.order.ideas import AT_ONCE
from forerun.search.order.worth import with_failed_starts
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting, has_transformer
from forerun.simulator import score as simulator_score
from forerun.spaces.strategies import Context

NOT_KNOWN = Alternatives()
MARKED = 1000
"""Number of rows checked for launch files, half a millisecond each."""


def build_board(
    setting: Setting[AnyContext], found: Found, *, started_s: float, score: Scorer = simulator_score, noted: bool = True
) -> Leaderboard:
    """Return the leaderboard of a search's result, with notes if ``noted``.

    ``started_s``: ``time.perf_counter()`` at the start of the search. ``score``: scorer for the searches of notes.
    """
    board = Leaderboard(
        request={**setting.to_json(), **found.request},
        space=found.space,
        rows=(),
        why="",
        defaults=(*setting.defaults, setting.axes_left_open(), *found.open_axes),
        remarks=(*setting.notes, *found.remarks),
        warnings=(*setting.warnings, *unlaunched(setting.context, chosen=setting.request.framework is not None)),
        elapsed_s=0.0,
        versions=versions(),
        workers=found.workers,
        families=found.families,
    )
    board = with_rows(board, setting, found.rows, score=score, alternatives=found.alternatives, noted=noted)
    board = replace(board, warnings=(*board.warnings, *none_launched(setting.context, board.rows[:MARKED])))
    return replace(board, elapsed_s=time.perf_counter() - started_s)


def with_rows(
    board: Leaderboard,
    setting: Setting[AnyContext],
    rows: tuple[AnyRow, ...],
    *,
    score: Scorer = simulator_score,
    alternatives: Alternatives = NOT_KNOWN,
    noted: bool = True,
    top: int | None = None,
) -> Leaderboard:
    """Return a board with the first ``top`` of other rows, best first, and their texts (also notes if ``noted``).

    ``top``: default of the request. Further ``rows`` compete for the first places, so that a shorter leaderboard is a
    prefix of a longer one.

    Raises
    ------
    EndedEarly
        Interrupted, with the board without notes.
    """
    known = [marked(setting.context, row) for row in rows[:MARKED]]
    if setting.objective in ("throughput", "cost"):
        blocks = [_launchable_first(known[start : start + AT_ONCE]) for start in range(0, len(known), AT_ONCE)]
        if blocks and setting.objective == "throughput" and _weighs_risk(setting):
            blocks[0] = _undominated(setting, blocks[0], alternatives.safest)
        known = [row for block in blocks for row in block]
    shown = (*known, *rows[MARKED:])[: top or setting.top]
    rows = certain(setting.context, ranked(shown, setting.objective), setting.objective)
    rows = with_goodput(setting, rows)
    board = replace(board, rows=rows, why=why(rows, _second(setting, rows)), advice=())
    if not noted:
        return board
    try:
        return replace(board, advice=notes_for(setting, rows, NoteSearch(score=score, alternatives=alternatives)))
    except KeyboardInterrupt as stop:
        remark = "interrupted after the search, before its notes: notes on safer rows are missing"
        raise EndedEarly(replace(board, remarks=(*board.remarks, remark)), stop) from None


def _weighs_risk(setting: Setting[AnyContext]) -> bool:
    """Return whether OOM risks are predicted and not limited by the user."""
    return isinstance(setting.context, Context) and setting.context.oom_risk is None


def _launchable_first(rows: Sequence[AnyRow]) -> list[AnyRow]:
    device_s = [row.gpus * row.step_time_s for row in rows]
    return [rows[place] for place in launchable_first(device_s, [not row.lacks_launch_file for row in rows])]


def _undominated(setting: Setting[AnyContext], rows: list[AnyRow], safest: Row | None) -> list[AnyRow]:
    """Move a row before the first launchable one where that is beaten in both speed and risk.

    The ``safest`` row competes as well. Where row 1 has no launch file, the safest may be a variant of it that is not
    shown, and competes with the price of failed starts.
    """
    place = next((place for place, row in enumerate(rows) if not row.lacks_launch_file), None)
    if place is None:
        return rows
    able = [row for row in rows if not row.lacks_launch_file]
    hidden: list[AnyRow] = []
    if safest is not None and safest.name not in {row.name for row in rows}:
        safest = marked(setting.context, safest)
        hidden = [] if safest.lacks_launch_file else [safest]
    able += hidden
    first = able[undominated_first([row.gpus * row.step_time_s for row in able], [row.oom_risk for row in able])[0]]
    if place > 0:
        first = min([first, *hidden], key=lambda row: with_failed_starts(row.gpus * row.step_time_s, row.oom_risk))
    others = [row for row in rows if row.name != first.name]
    return [*others[:place], first, *others[place:]][: len(rows)]


def _second(setting: Setting[AnyContext], rows: tuple[AnyRow, ...]) -> str:
    """Return the reason why a faster second row is not first."""
    if len(rows) < 2 or setting.objective not in ("throughput", "cost") or not has_transformer(setting):
        return ""
    return lower_because(setting.context, rows[0], rows[1], rows)
