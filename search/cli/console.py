"""The console that tables are printed on."""

import sys

from rich.console import Console, RenderableType

from forerun.search.cli.bars import Brush


def open_console() -> Console:
    """Return a console on stdout: plain without a terminal or under NO_COLOR, 80 columns wide where none is known."""
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=False)


def brush_of(console: Console) -> Brush:
    """Return how bars are drawn on a console."""
    return Brush(ascii_only=console.options.ascii_only)


def say(console: Console, *items: RenderableType) -> None:
    """Print each item on lines of its own."""
    for item in items:
        console.print(item)
