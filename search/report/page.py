"""The report page: one HTML text that opens without a network."""

from collections.abc import Sequence
from pathlib import Path

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import Row
from forerun.search.figures.markup import Safe
from forerun.search.report import sections
from forerun.search.report.accuracy import accuracy_section
from forerun.search.report.axes import differing
from forerun.search.report.cards import cards
from forerun.search.report.details import details_data, launch_texts, resolved_request
from forerun.search.report.labels import heading
from forerun.search.report.own_run import own_run_section
from forerun.search.report.scaling import scaling_section
from forerun.search.report.scatter import View, pareto_front, scatter, views_data, views_of
from forerun.search.report.scripted import part, scripted_page
from forerun.search.report.table import filter_form, leaderboard_table
from forerun.search.report.timeline import stages_section, timeline_section
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text

MOST_ROWS = 2000
"""Most rows on the page; more would make sorting and layout in browsers noticeably slow."""


def report_html(board: Leaderboard) -> str:
    """Return a leaderboard as a self-contained page with styles, script and figures.

    Its Content-Security-Policy forbids every request and every other script.

    Raises
    ------
    RequestError
        The leaderboard has no rows.
    """
    if not board.rows:
        raise RequestError("a report needs at least one row, but the leaderboard has none")
    rows = board.rows[:MOST_ROWS]
    columns = differing(rows)
    front = pareto_front(rows)
    views = views_of(rows, several=len({row.gpus for row in rows}) > 1)
    present = None if board.baseline is None else board.baseline.row
    resolved = resolved_request(board)
    launches = launch_texts(board, resolved)
    example = {} if rows[0].facts is None else {"example": "data4 filter4"}
    leaderboard = Safe(filter_form(columns, **example) + leaderboard_table(board, rows, frozenset(front)))
    trade_off = (
        f"The {len(rows):,} rows of the table. The line joins those that no other beats in both. Point at a symbol for "
        "its figures; a double click, or arrow keys and Enter, shows its row."
    )
    parts = (
        part("answer", "Answer", "Answer", sections.verdict(board, cards(board, launches))),
        part("own-run", "Your run", "Your run against the best", own_run_section(board)),
        part("leaderboard", "Leaderboard", "Leaderboard", leaderboard),
        part("trade-off", "Trade-off", _against(views), scatter(rows, columns, views, present), trade_off),
        part("step", "Step", "Time of a step", sections.step_section(rows), _drawn(rows, "The best {}, on one scale.")),
        part(
            "memory",
            "Memory",
            "What fills the memory",
            sections.memory_section(rows),
            _drawn(rows, "The fullest GPU of the best {}."),
        ),
        part("stages", "Stages", "Memory of every stage of the winner", stages_section(board, resolved)),
        part("timeline", "Timeline", "The winner's step", timeline_section(board, resolved)),
        part("scaling", "Scaling", "Throughput against GPUs", scaling_section(board, resolved)),
        part("rejected", "Rejected", "Why others are out", sections.rejected_section(board)),
        part("accuracy", "Accuracy", "How far to trust it", accuracy_section(board)),
        part("inputs", "Inputs", "Inputs, defaults and versions", sections.inputs_section(board)),
    )
    return scripted_page(
        title=heading(board),
        header=sections.header(board),
        parts=[one for one in parts if one is not None],
        data={
            "axes": {axis: list(values) for axis, values in columns.items()},
            "views": views_data(rows, views, present),
            "details": details_data(rows, launches),
        },
        script="page.js",
        version=board.versions.get("forerun", ""),
    )


def _against(views: Sequence[View]) -> str:
    names = [view.name for view in views]
    return "Throughput against " + " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _drawn(rows: Sequence[Row], text: str) -> str:
    count = min(sections.BEST, len(rows))
    return text.format(f"{count} rows" if count > 1 else "row")


def write_report(path: Path, board: Leaderboard) -> None:
    """Write a leaderboard as a page, atomically.

    Raises
    ------
    RequestError
        The path cannot be written, or the leaderboard has no rows.
    """
    write_text(path, report_html(board))
