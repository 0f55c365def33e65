"""Sections of the page below the leaderboard, and its header."""

from collections.abc import Sequence

from forerun.search.answer.notes.low_oom_risk import SAFEST
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import Row
from forerun.search.explore.flat.bound import SLOWER
from forerun.search.figures.markup import Safe, column, joined, numbers_line, scrolled, table, tag
from forerun.search.order.objectives import objective_named
from forerun.search.report.bars import Bar, memory_bars, plain_bar, time_bars
from forerun.search.report.cards import safer
from forerun.search.report.labels import REASONS, command, heading, request_lines
from forerun.spaces.units import format_seconds, format_whole

BEST = 10
"""Rows whose parts are drawn."""


def header(board: Leaderboard) -> Safe:
    """Return the title and the request."""
    request = board.request
    sequence = f"sequence {request['seq_len']:,}, " if request.get("seq_len") else ""
    precision = " and ".join(request.get("precisions") or [request["precision"]])
    request_text = (
        f"global batch {grouped(request['global_batch'])}, {sequence}{precision}, "
        f"{request['framework']}; ranked by {objective_named(request['objective']).title_in(board.unit)}"
    )
    return joined([tag("h1", heading(board)), tag("p", request_text, class_="asked")])


def grouped(number: int | str) -> str:
    """Return a number with grouped digits; texts, like a batch per GPU, are unchanged."""
    return number if isinstance(number, str) else f"{number:,}"


def verdict(board: Leaderboard, cards: Safe) -> Safe:
    """Return the answer: the ``cards`` of the fastest and the safest strategy, notes, and why the first row wins."""
    lead = (
        f"The best of {board.space.legal:,} legal strategies, in a space of {format_whole(board.space.size)} "
        f"candidates. {board.why} All figures are predicted."
    )
    safest = [note for note in board.notes if note.startswith(SAFEST)]
    others = [note for note in board.notes if note not in safest]
    safest = [note for note in safest if f" {safer(board.rows).name} " not in note]  # its card has this text
    notes = tag("ul", *(tag("li", note) for note in others), class_="notes") if others else None
    warnings = [f"{board.unmeasured}."] if board.unmeasured else []
    warnings += [f"{note[0].upper()}{note[1:]}." for note in safest]
    return joined([*(tag("p", text, class_="warn") for text in warnings), cards, tag("p", lead), notes])


def step_section(rows: Sequence[Row]) -> Safe:
    """Return the time of the best rows by part."""
    bars = [
        Bar(label=_numbered(row), value=format_seconds(row.step_time_s), parts=row.breakdown_s) for row in rows[:BEST]
    ]
    return time_bars(bars, digits=_digits(rows[0]))


def memory_section(rows: Sequence[Row]) -> Safe:
    """Return the memory of the fullest device of the best rows by part, against the limit."""
    bars = [
        Bar(
            label=_numbered(row),
            value=f"{row.peak_memory_gib:.1f} GiB" + ("" if row.facts is not None else f", stage {row.peak_stage}"),
            parts=row.memory_gib,
            limit=row.memory_limit_gib,
        )
        for row in rows[:BEST]
    ]
    return memory_bars(bars)


def rejected_section(board: Leaderboard) -> Safe:
    """Return the number of candidates and the reasons of rejections."""
    space = board.space
    slower = space.rejected.get(SLOWER, 0)
    passed = f", {slower:,} were not scored because compute alone makes them slower" if slower else ""
    lead = tag(
        "p",
        f"{format_whole(space.size)} candidates: {space.legal:,} keep every law, {space.feasible:,} of them also fit "
        f"in memory{passed}. A candidate counts for the first law it breaks.",
    )
    if not space.rejected:
        return lead
    most = max(space.rejected.values()) or 1
    lines = []
    for reason, count in space.rejected.items():
        meaning = tag("small", REASONS[reason]) if reason in REASONS else None
        name = joined([reason, meaning, plain_bar(count / most)])
        lines.append(numbers_line(name, format_whole(count), f"{count / max(space.size, 1):.2%}"))
    heads = ("reason", column("candidates"), column("share"))
    counts = table(heads, lines, caption="Rejected candidates by reason")
    return joined([lead, scrolled(counts, "Rejected candidates")])


def inputs_section(board: Leaderboard) -> Safe:
    """Return all inputs of the answer: request, defaults, notes, versions and the command."""
    lines = [tag("tr", tag("th", name, scope="row"), tag("td", text)) for name, text in request_lines(board)]
    versions = ", ".join(f"{name} {version}" for name, version in board.versions.items())
    enumerated = f"Searched in {format_seconds(board.elapsed_s)} {board.workers}; {versions}."
    return joined(
        [
            scrolled(table(("input", "value"), lines, caption="Inputs"), "Inputs"),
            tag("h3", "Filled in for you"),
            tag("ul", *(tag("li", text) for text in board.defaults)) if board.defaults else tag("p", "Nothing."),
            tag("h3", "Notes"),
            tag("ul", *(tag("li", text) for text in board.notes)) if board.notes else tag("p", "None."),
            tag("h3", "Ask again"),
            tag("pre", tag("code", command(board)), tabindex="0"),
            tag("h3", "Versions"),
            tag("p", enumerated),
        ]
    )


def _numbered(row: Row) -> str:
    return f"{row.rank}. {row.name}"


def _digits(row: Row) -> int:
    return 2 if row.step_time_s >= 10 else 3 if row.step_time_s >= 1 else 5
