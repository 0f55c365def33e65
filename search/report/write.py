"""The page as a file."""

import os
from pathlib import Path

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.files.atomic import write_atomically
from forerun.search.report.page import report_html
from forerun.spaces.errors import RequestError


def check_page(path: Path) -> None:
    """Refuse a path that no page can be written to, before anything is computed. An old page is replaced.

    Raises:
        RequestError: the path is a folder, or its folder is missing or not writable.
    """
    if path.is_dir():
        raise RequestError(f"{path} is a folder; name a file, like {path / 'report.html'}")
    if path.exists() and not path.is_file():
        raise RequestError(f"{path} is not a regular file; name another one")
    if not path.parent.is_dir():
        raise RequestError(f"{path.parent} is not a folder; make it first, or name another file")
    if not os.access(path.parent, os.W_OK):
        raise RequestError(f"{path.parent} is not writable; name a file in another folder")


def write_report(path: Path, board: Leaderboard) -> None:
    """Write a leaderboard as a page; no reader ever sees half of it.

    Raises:
        RequestError: the path cannot be written, or the leaderboard has no rows.
    """
    check_page(path)
    page = report_html(board)
    try:
        write_atomically(path, page)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror or error}") from None
