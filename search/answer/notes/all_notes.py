"""All notes on the rows of a leaderboard, for every kind of search."""

from collections.abc import Sequence
from typing import cast

from forerun.search.answer.notes.contract import AnyNote, Note, NoteSearch
from forerun.search.answer.notes.divisible import divisible_note, startable_note
from forerun.search.answer.notes.faster import faster_note, order_note
from forerun.search.answer.notes.goodput import goodput_note
from forerun.search.answer.notes.gpu_counts import knee_note, racks_note
from forerun.search.answer.notes.in_time import in_time_note
from forerun.search.answer.notes.low_oom_risk import safer_note
from forerun.search.answer.notes.making_room import room_note
from forerun.search.answer.notes.switched import switches_note
from forerun.search.answer.notes.uneven_experts import uneven_note
from forerun.search.answer.notes.validated_runs import checked_note, narrowing_note
from forerun.search.board.rows import AnyRow, Row
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.setting import Setting, has_transformer


def notes_for(setting: Setting[AnyContext], rows: Sequence[AnyRow], search: NoteSearch) -> tuple[str, ...]:
    """Return the notes on ranked rows, most important first."""
    if not rows:
        return ()
    if has_transformer(setting):
        flat = cast("Sequence[Row]", rows)
        return tuple(text for note in NOTES for text in note(setting, flat, search))
    return tuple(text for note in GRAPH_NOTES for text in note(setting, rows, search))


def measured_note(setting: Setting[AnyContext], rows: Sequence[AnyRow], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on the profiled share of a row's operator time; none without a profile."""
    if setting.context.cluster.device.measured is None:
        return ()
    from forerun.search.measured.profiling import share_measured

    share, known, count = share_measured(setting.context, rows[0].strategy)
    return (
        f"{share:.0%} of the operator time of {rows[0].name} was measured ({known} of {count} operators); the rest is "
        "the fitted surface scaled to these measurements",
    )


def fast_kernels_note(setting: Setting[AnyContext], rows: Sequence[AnyRow], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on MFU above 100 % of convolutional networks."""
    mfu = rows[0].mfu
    note = f"MFU {mfu:.0%}: model FLOPs are those of direct convolutions, and Winograd kernels multiply less"
    return (note,) if mfu > 1 else ()


NOTES: tuple[Note, ...] = (
    measured_note,
    startable_note,
    goodput_note,
    in_time_note,
    knee_note,
    room_note,
    divisible_note,
    faster_note,
    safer_note,
    racks_note,
    uneven_note,
    switches_note,
    checked_note,
    narrowing_note,
    order_note,
)
GRAPH_NOTES: tuple[AnyNote, ...] = (measured_note, knee_note, fast_kernels_note)
"""Notes for operator graphs; the evidence of other notes comes from transformers."""
