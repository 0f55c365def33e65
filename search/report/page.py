"""The whole page: one HTML text that opens without a network."""

import base64
import hashlib
import json
from collections.abc import Sequence
from string import Template

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import Row
from forerun.search.figures.markup import Safe, escape, tag
from forerun.search.figures.still_page import page_style
from forerun.search.report import sections
from forerun.search.report.accuracy import accuracy_section
from forerun.search.report.axes import differing
from forerun.search.report.details import details_data
from forerun.search.report.labels import heading
from forerun.search.report.launch import launch_details, launch_texts
from forerun.search.report.own_run import own_run_section
from forerun.search.report.request_of import request_behind
from forerun.search.report.scaling import scaling_section
from forerun.search.report.scatter import View, pareto_front, scatter, views_data, views_of
from forerun.search.report.stages import stages_section
from forerun.search.report.table import filter_form, leaderboard_table
from forerun.search.report.timeline import timeline_section
from forerun.spaces.documents.package_data import package_text
from forerun.spaces.errors import RequestError

MOST_ROWS = 2000
"""Rows on the page; browsers sort and lay out more of them only with a delay that is felt."""


def report_html(board: Leaderboard) -> str:
    """Return a leaderboard as a page in which nothing is loaded: styles, script and figures are part of it.

    The page's own policy (Content-Security-Policy) forbids every request and every script but the one it carries.

    Raises:
        RequestError: the leaderboard has no rows.
    """
    if not board.rows:
        raise RequestError("a report needs at least one row, but the leaderboard has none")
    rows = board.rows[:MOST_ROWS]
    columns = differing(rows)
    front = pareto_front(rows)
    views = views_of(rows, several=len({row.gpus for row in rows}) > 1)
    own = None if board.baseline is None else board.baseline.row
    script = _asset("page.js")
    behind = request_behind(board)
    launches = launch_texts(board, behind)
    example = {} if rows[0].facts is None else {"example": "data4 filter4"}
    leaderboard = Safe(filter_form(columns, **example) + leaderboard_table(board, rows, frozenset(front)))
    trade_off = (
        f"The {len(rows):,} rows of the table. The line joins those that no other beats in both. Point at a symbol for "
        "its figures; a double click, or arrow keys and Enter, shows its row."
    )
    parts = (
        _section("answer", "Answer", "Answer", sections.verdict(board, launch_details(rows, launches))),
        _section("own-run", "Your run", "Your run against the best", own_run_section(board)),
        _section("leaderboard", "Leaderboard", "Leaderboard", leaderboard),
        _section("trade-off", "Trade-off", _against(views), scatter(rows, columns, views, own), trade_off),
        _section(
            "step", "Step", "Where a step goes", sections.step_section(rows), _drawn(rows, "The best {}, on one scale.")
        ),
        _section(
            "memory",
            "Memory",
            "What fills the memory",
            sections.memory_section(rows),
            _drawn(rows, "The fullest GPU of the best {}."),
        ),
        _section("stages", "Stages", "Memory of every stage of the winner", stages_section(board, behind)),
        _section("timeline", "Timeline", "The winner's step", timeline_section(board, behind)),
        _section("scaling", "Scaling", "Throughput against GPUs", scaling_section(board, behind)),
        _section("rejected", "Rejected", "Why others are out", sections.rejected_section(board)),
        _section("accuracy", "Accuracy", "How far to trust it", accuracy_section(board)),
        _section("inputs", "Inputs", "Inputs, defaults and versions", sections.inputs_section(board)),
    )
    present = [part for part in parts if part is not None]
    links = [tag("li", tag("a", link, href=f"#{name}")) for name, link, _ in present]
    return Template(_asset("page.html")).substitute(
        policy=_policy(script),
        title=escape(f"{heading(board)} · forerun"),
        style=page_style(),
        header=sections.header(board),
        links=tag("ul", *links),
        sections="\n".join(text for _, _, text in present),
        axes=_json_text({axis: list(values) for axis, values in columns.items()}),
        views=_json_text(views_data(rows, views, own)),
        details=_json_text(details_data(rows, launches)),
        script=script,
        version=escape(board.versions.get("forerun", "")),
    )


def _section(name: str, link: str, title: str, content: Safe | None, hint: str = "") -> tuple[str, str, Safe] | None:
    if content is None:
        return None
    told = tag("p", hint, class_="hint") if hint else None
    text = tag("section", tag("h2", title, id=f"{name}-title"), told, content, id=name, aria_labelledby=f"{name}-title")
    return name, link, text


def _against(views: Sequence[View]) -> str:
    names = [view.name for view in views]
    return "Throughput against " + " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _drawn(rows: Sequence[Row], text: str) -> str:
    count = min(sections.BEST, len(rows))
    return text.format(f"{count} rows" if count > 1 else "row")


def _asset(name: str) -> str:
    return package_text("forerun.search.report", "assets", name)


def _policy(script: str) -> str:
    """Return a policy that lets the browser run this script and load nothing (W3C CSP level 3)."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json_text(value: object) -> str:
    """Return JSON that can stand inside a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
