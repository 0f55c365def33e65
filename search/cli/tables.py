"""Tables of the terminal: a word for each column, and rows of texts."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text


def table_of(
    columns: Sequence[str], rows: Iterable[Sequence[RenderableType]], *, title: str | None = None, wide: bool = False
) -> Table:
    """Return rows as a table.

    Parameters
    ----------
    columns
        Head of each column: ``">name"`` for figures, which are set to the right, ``"|name"`` for words that stay on one
        line, any other for text that is folded.
    rows
        Cells in the order of the columns.
    title
        Line above the table.
    wide
        Whether columns keep a blank on both sides.
    """
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1) if wide else (0, 1, 0, 0), pad_edge=False, title=title, title_justify="left"
    )
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
