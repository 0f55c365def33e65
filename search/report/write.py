"""The page as a file."""

from pathlib import Path

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.report.page import report_html
from forerun.spaces.files import write_text


def write_report(path: Path, board: Leaderboard) -> None:
    """Write a leaderboard as a page, atomically.

    Raises:
        RequestError: the path cannot be written, or the leaderboard has no rows.
    """
    write_text(path, report_html(board))
