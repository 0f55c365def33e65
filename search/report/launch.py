"""How the rows of a leaderboard are started: the launch files of the best, as the page shows them."""

from collections.abc import Sequence

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import Row
from forerun.search.figures.markup import Safe, joined, tag
from forerun.search.formats.launch_of import launch_of
from forerun.search.report.request_of import Behind
from forerun.spaces.errors import ForerunError

MOST = 10
"""Rows whose launch files are part of the page."""


def launch_texts(board: Leaderboard, behind: Behind) -> list[str]:
    """Return the launch files of the best rows as text, empty for one that no format has words for; none where the
    request is not at hand any more."""
    if behind.setting is None or board.rows[0].facts is not None:
        return []
    context, texts = behind.setting.context, []
    for row in board.rows[:MOST]:
        try:
            name, files = launch_of(context, row.strategy, name=f"{context.model.name} rank {row.rank}")
        except ForerunError:
            texts.append("")
            continue
        texts.append("\n".join(f"# {name}: {file}\n{text}" for file, text in files.items()))
    return texts


def launch_details(rows: Sequence[Row], texts: Sequence[str]) -> Safe | None:
    """Return the launch file of the winner, folded; None where there is none."""
    if not texts or not texts[0]:
        return None
    told = f"forerun export RUN --rank {rows[0].rank} writes it from a folder of `search --out RUN`."
    return tag(
        "details",
        tag("summary", "Launch it"),
        joined([tag("pre", texts[0]), tag("p", told, class_="hint")]),
        id="launch",
    )
