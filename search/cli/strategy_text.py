"""A strategy in a narrow column: lines break at a space, or after a ``+`` in a list longer than a line."""

import re
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.text import Text

WORD, ELEMENT = re.compile(r"\S+"), re.compile(r"[^+]+\+?")


class StrategyText:
    """A text that is fitted to a table column without breaking option names.

    rich breaks only at blanks and folds longer words in the middle, which is hard to read and to search.
    """

    __slots__ = ("_text",)

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        ends = line_ends(self._text.plain, options.max_width)
        for line in self._text.divide(ends):
            line.rstrip()
            yield from line.wrap(console, options.max_width, overflow="fold")


def line_ends(plain: str, width: int) -> list[int]:
    """Return the ends of lines of at most ``width`` characters: before a word, in a longer one after a ``+``.

    >>> line_ends("tp4 with=moe-overlap+norm (+1)", 16)
    [4, 21]
    """
    ends, start = [], 0
    for word in WORD.finditer(plain):
        if "\n" in plain[start : word.start()]:
            start = plain.rindex("\n", 0, word.start()) + 1
        within = word.end() - word.start() <= width
        pieces = [word.span()] if within else [found.span() for found in ELEMENT.finditer(plain, *word.span())]
        for first, last in pieces:
            if last - start > width and first > start:
                ends.append(first)
                start = first
    return ends
