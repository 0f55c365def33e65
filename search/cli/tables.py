"""The one printer of tables: lines of a document, with a key and a head for each column."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from forerun.spaces.units import format_bytes, format_rate, format_seconds

Line: TypeAlias = Mapping[str, Any]
Columns: TypeAlias = Mapping[str, str | Callable[[Line], RenderableType]]
"""Head of each column (see ``table_of``), with the key of its value or a function of the line."""
LONGEST = 120
"""Most characters of a shown name."""
FIGURES: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_bytes_per_s", format_rate),
    ("bytes", format_bytes),
    ("per_s", "{:,.1f}".format),
    ("_s", format_seconds),
    ("seconds", format_seconds),
    ("efficiency", "{:.0%}".format),
    ("share", "{:.1%}".format),
    ("gib", "{:.1f}".format),
    ("factor", "{:.2f}".format),
)
"""Suffixes of keys with the format of values in their unit; the first match counts."""


def figure(key: str, value: Any) -> str:
    """Return a value of a document as text; the suffix of its key is the unit.

    >>> figure("step_s", 0.25), figure("gradient_bytes", 2e6), figure("rank", 3), figure("share", None)
    ('250 ms', '1.91 MiB', '3', '')
    """
    if value is None:
        return ""
    if isinstance(value, str | bool):
        return str(value)[:LONGEST]
    return next((shown(value) for ending, shown in FIGURES if key.endswith(ending)), f"{value}")


def listing(title: str | None, lines: Sequence[Line], columns: Columns, *, most: int | None = None) -> Table:
    """Return lines of a document as a table.

    Parameters
    ----------
    title
        Line above the table.
    lines
        Entries of a list of a document.
    columns
        Head and value of each column. Columns whose first value is a number are right-aligned.
    most
        Most lines shown, followed by the number of others.
    """
    heads = []
    for head, source in columns.items():
        first = lines[0].get(source) if lines and isinstance(source, str) else ""
        heads.append(head if isinstance(first, str) or head[:1] in ">|" else f">{head}")
    cells = [
        [figure(source, line.get(source)) if isinstance(source, str) else source(line) for source in columns.values()]
        for line in lines[:most]
    ]
    if len(lines) > len(cells):
        cells.append([f"… {len(lines) - len(cells)} more (--json)", *[""] * (len(columns) - 1)])
    return table_of(heads, cells, title=title)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[RenderableType]], *, title: str | None = None) -> Table:
    """Return rows as a table.

    Parameters
    ----------
    columns
        Head of each column: ``">name"`` for right-aligned figures, ``"|name"`` for unbroken words, others for folded
        text.
    rows
        Cells in the order of the columns.
    title
        Line above the table.
    """
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title=title, title_justify="left")
    for column in columns:
        head = column.removeprefix(">").removeprefix("|")
        folded = head == column
        table.add_column(
            head,
            justify="right" if column.startswith(">") else "left",
            no_wrap=not folded,
            overflow="fold" if folded else "ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


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
        pieces = [word.span()] if within else [match.span() for match in ELEMENT.finditer(plain, *word.span())]
        for first, last in pieces:
            if last - start > width and first > start:
                ends.append(first)
                start = first
    return ends
