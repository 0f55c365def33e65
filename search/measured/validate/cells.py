"""Cells of a row as numbers, the record of what was filled in, and the signal that a row cannot be expressed."""

import math
from typing import TypeVar

from forerun.search.measured.validate.columns import TableRow
from forerun.search.measured.validate.runs import RULES

T = TypeVar("T")
MOST_LAYERS = 10_000
"""Most layers of a model: a row with more is a typing error, and every layer would be allocated."""


class Skip(Exception):
    """A row cannot be expressed; the text is the reason for the count."""


class Filled:
    """Codes of the rules used for one row, in order."""

    def __init__(self) -> None:
        self.codes: list[str] = []

    def of(self, code: str, value: T) -> T:
        """Record a rule and return its value."""
        if code not in RULES:
            raise KeyError(code)
        if code not in self.codes:
            self.codes.append(code)
        return value


def number(row: TableRow, column: str) -> float | None:
    """Return a cell as a number, None if blank.

    Raises:
        Skip: the cell is not a finite number.
    """
    text = row[column]
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Skip(f"{column} is not a number")
    return value


def integer(row: TableRow, column: str) -> int | None:
    """Return a cell as a whole number, None if blank.

    Raises:
        Skip: the cell is not a whole number.
    """
    value = number(row, column)
    if value is None:
        return None
    if value != int(value):
        raise Skip(f"{column} is not a whole number")
    if column == "layers" and value > MOST_LAYERS:
        raise Skip(f"a model has at most {MOST_LAYERS:,} layers")
    return int(value)


def required(row: TableRow, column: str, what: str) -> int:
    """Return a cell as a whole number of at least one.

    Raises:
        Skip: the cell is blank or zero; ``what`` names the missing fact.
    """
    value = integer(row, column)
    if not value:
        raise Skip(f"missing {what}: {column}")
    return value
