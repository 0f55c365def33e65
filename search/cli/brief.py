"""A leaderboard in one screen: the decision first, common words of all rows once, and the most important notes."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forerun.search.answer.notes.divisible import BADLY, STARTABLE
from forerun.search.answer.notes.gpu_counts import KNEE
from forerun.search.answer.notes.low_oom_risk import SAFEST
from forerun.search.answer.notes.making_room import ROOM
from forerun.search.answer.notes.switched import SWITCHED
from forerun.search.board.leaderboard import Leaderboard, row_to_launch
from forerun.search.board.rows import Row
from forerun.spaces.units import format_seconds

MOST_NOTES = 5
"""Default number of notes."""
ENCODED = "beside every sequence"
"""End of the default of a model with an encoder, with its number of tokens."""
KEPT_DEFAULTS = ("precision", "framework", "switches", "moe imbalance", "price", "GPUs of")
"""First words of defaults that can change a decision; others concern links and the search."""
_LEAD = re.compile(r"(?<=row \d)( on \d[\d,]* GPUs)|(?<=row \d\d)( on \d[\d,]* GPUs)")
_ENDED = r"(?![\w+*/]|[,:]\w)(?! [a-z_-]+[\d=])(?! sp\b)"
"""Text that ends a match of a strategy's name: the rest of a word, or a further word of a longer strategy."""
_FLAGS = re.compile(r" \(-[^()]*\)(?=;|$)")
"""Framework flags of a switch, which are set by ``--with``."""


def shared_words(rows: Sequence[Row[Any]]) -> tuple[str, ...]:
    """Return the common words of the strategies of several rows, in order.

    >>> shared_words(())
    ()
    """
    if len(rows) < 2:
        return ()
    row_words = [words_of(row) for row in rows]
    return tuple(word for word in row_words[0] if all(word in other for other in row_words[1:]))


def distinct_words(row: Row[Any], shared: Sequence[str]) -> str:
    """Return a strategy without the common words of all rows; unchanged if no word would remain."""
    return " ".join(word for word in words_of(row) if word not in shared) or row.name


def words_of(row: Row[Any]) -> list[str]:
    """Return the words of a row: those of its strategy, and its precision if rows differ in it."""
    return [*row.name.split(), *([row.precision] if row.precision else [])]


def with_ranks(text: str, rows: Sequence[Row[Any]]) -> str:
    """Replace the strategies of rows in a text by their ranks."""
    named = [row for row in rows if row.rank and row.precision == rows[0].precision]  # the notes apply to its precision
    for row in sorted(named, key=lambda row: -len(row.name)):
        # A strategy may be the beginning of a longer one that is not a row.
        text = re.sub(re.escape(row.name) + _ENDED, f"row {row.rank}", text)
    text = _LEAD.sub("", text) if len({row.gpus for row in rows}) == 1 else text
    return text.replace("The runner-up row", "Row").replace("row 1: step", "Row 1: step")


def decision(board: Leaderboard, out: Path | None) -> list[str]:
    """Return the row to launch, a safer one, what would be faster, and the next command."""
    first = board.rows[0]
    startable = [note for note in board.advice if note.startswith(STARTABLE)]
    unit = "token" if board.unit == "token" else board.unit
    launch = row_to_launch(board.rows)
    per_gpu = launch.throughput_per_gpu
    rate = f"{per_gpu:,.0f}" if per_gpu >= 100 else f"{per_gpu:.3g}"
    risk = f", {launch.oom_risk:.0%} OOM risk" if launch.facts is None else ""
    span = f" ({launch.interval_level:.0%}: {launch.range_text})" if launch.range_text else ""
    gpus = f" on {launch.gpus:,} GPUs" if len(board.request.get("gpu_counts") or ()) > 1 else ""
    verb = "Launch" if launch is first else "Row 1 has no launch file. Launch"
    if launch.lacks_launch_file:
        verb = "No row has a launch file. The best is"
    lines = [
        f"{verb} row {launch.rank}{gpus}: {format_seconds(launch.step_time_s)} a step{span}, {rate} {unit}s/s/GPU, "
        f"{launch.peak_memory_gib:.1f} of {launch.memory_limit_gib:.1f} GiB{risk}."
    ]
    lines += [safer(note, board.rows) for note in board.advice if note.startswith(SAFEST)]
    lines += [f"{with_ranks(note, board.rows)}." for note in board.advice if note.startswith(KNEE)]
    lines += [faster(note, board.rows) for note in board.advice if is_gain(note)]
    lines += [f"Next: the same search with {note.removeprefix(STARTABLE).strip()}." for note in startable]
    if first.facts is None and not first.tree and not startable:
        run = "run" if out is None else str(out)
        before = "the same search with --out run, then " if out is None else ""
        rank = "" if launch.rank == 1 else f" --rank {launch.rank}"
        lacks = ", which says what each format lacks" if launch.lacks_launch_file else ""
        lines.append(f"Next: {before}forerun export {run}{rank} --format all --out launch{lacks}")
    return lines


def safer(note: str, rows: Sequence[Row[Any]]) -> str:
    """Return the note on the safest strategy as one line of a decision."""
    text = with_ranks(note.removeprefix(SAFEST).strip(), rows)
    return f"Safer: {text.replace(' ranks such rows only', '')}."


def is_gain(note: str) -> bool:
    """Check whether a note names a change of the request that would be faster."""
    return note.startswith((ROOM, SWITCHED)) or any(words in note for words in BADLY)


def faster(note: str, rows: Sequence[Row[Any]]) -> str:
    """Return the note on a gain as one line of a decision."""
    text = note.removeprefix(ROOM).replace(SWITCHED, "row 1 with one of these (--with):")
    return f"Faster: {with_ranks(_FLAGS.sub('', text), rows).strip()}."


def weighty_notes(board: Leaderboard) -> tuple[list[str], int]:
    """Return the shown notes, most important first, and the number of others."""
    above = (SAFEST, KNEE, STARTABLE)
    notes = [note for note in board.advice if not (note.startswith(above) or is_gain(note))]
    notes = [with_ranks(_FLAGS.sub("", note), board.rows) for note in (*notes, *board.remarks)]
    return notes[:MOST_NOTES], len(notes[MOST_NOTES:])


def reason(board: Leaderboard) -> str:
    """Return the reason why the first row is first, without the words of the decision."""
    risk = board.rows[0].risk_text if board.rows else ""
    return with_ranks(board.why.replace(f" {risk}.", "", 1) if risk else board.why, board.rows)


def weighty_defaults(board: Leaderboard) -> list[str]:
    """Return the defaults that can change a decision."""
    return [text for text in board.defaults if text.startswith(KEPT_DEFAULTS) or text.endswith((".toml)", ENCODED))]
