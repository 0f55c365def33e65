"""Launch files of the best rows of a leaderboard, as shown on the page."""

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.formats.launch_of import launch_of
from forerun.search.report.request_of import Behind
from forerun.search.request.setting import of_transformer
from forerun.spaces.errors import ForerunError

MOST = 10
"""Rows whose launch files are part of the page."""


def launch_texts(board: Leaderboard, behind: Behind) -> list[str]:
    """Return the launch files of the best rows, "" for an inexpressible row; no texts if the request is unavailable."""
    if behind.setting is None or board.rows[0].facts is not None:
        return []
    context, texts = of_transformer(behind.setting).context, []
    for row in board.rows[:MOST]:
        try:
            name, files = launch_of(
                context.in_precision(row.precision), row.strategy, name=f"{context.model.name} rank {row.rank}"
            )
        except ForerunError:
            texts.append("")
            continue
        texts.append("\n".join(f"# {name}: {file}\n{text}" for file, text in files.items()))
    return texts
