"""The console that tables are printed on."""

import os
import sys
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from forerun.search.cli.bars import Brush
from forerun.search.cli.streams import raw_stream
from forerun.spaces.escaping import visible

WIDE = 200
"""Columns of a table in a file or a pipe, where a row should be one line."""
WIDEST = 1000
"""Columns of a console wide enough for any table."""
LEAST = 56
"""Least columns of a table; a narrower terminal wraps its lines, and nothing is cut."""


class PlainConsole(Console):
    """A console that escapes its output, and leaves broken pipes to the command line (exit code 141)."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render to escaped segments."""
        for segment in super().render(renderable, options):
            safe = segment.text if segment.control else visible(segment.text)
            yield segment if safe is segment.text else Segment(safe, segment.style)

    def on_broken_pipe(self) -> None:
        """Pass the error on; rich would end the program with exit code 1."""
        raise BrokenPipeError


def open_console() -> Console:
    """Return a console on stdout: plain without a terminal or under NO_COLOR, 80 columns by default."""
    return _opened(None)


def open_wide_console() -> Console:
    """Return a console for rows to be searched with other tools: one line each unless a terminal is too narrow."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return _opened(None if known else WIDE)


def _opened(width: int | None) -> Console:
    console = PlainConsole(
        file=raw_stream(sys.stdout), highlight=False, markup=False, emoji=False, soft_wrap=False, width=width
    )
    console.width = max(LEAST, console.width)
    return console


def open_progress(stream: TextIO) -> Console:
    """Return a console for bars and live tables."""
    return PlainConsole(file=raw_stream(stream))


def fits(table: Table, console: Console) -> bool:
    """Whether a console is wide enough for unbroken cells of a table."""
    return table.__rich_measure__(console, console.options.update(max_width=WIDEST)).maximum <= console.width


def brush_of(console: Console) -> Brush:
    """Return the brush for bars on a console."""
    return Brush(ascii_only=console.options.ascii_only)


def say(console: Console, *items: RenderableType) -> None:
    """Print each item on separate lines."""
    for item in items:
        console.print(item)
