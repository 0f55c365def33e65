"""Limits of documents for every parser: texts without control characters, finite numbers, depth.

A check raises RequestError for a value beyond its limit.
"""

import math
from typing import Any

from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import harmful, quoted

KeyPath = tuple[str | int, ...]

MAX_DEPTH = 64
TOO_DEEP = f"a document is at most {MAX_DEPTH} levels deep"
LARGEST_INT = 2**63 - 1
"""The largest integer of a table."""
LARGEST = 1e100
"""The largest magnitude of other numbers: products of three are finite."""
MOST_DIGITS = 300


def check_text(text: str, what: str = "a text") -> str:
    """Return a key or a text without control characters and bidirectional marks."""
    character = harmful(text)
    if character is not None:
        raise RequestError(f"{what} has no control characters, but {quoted(text, most=40)} has U+{ord(character):04X}")
    return text


def check_int(value: int) -> int:
    """Return an integer of at most 63 bits."""
    if not -LARGEST_INT <= value <= LARGEST_INT:
        raise RequestError(f"a whole number has at most 63 bits, but this one has {value.bit_length()}")
    return value


def check_float(value: float, text: str) -> float:
    """Return the finite number of a ``text``, at most ``LARGEST``."""
    if not math.isfinite(value):
        raise RequestError(f"a number must be finite, but got {quoted(text, most=40)}")
    if abs(value) > LARGEST:
        raise RequestError(f"a number is at most {LARGEST:g}, but got {quoted(text, most=40)}")
    return value


def check_tree(data: Any, *, counts: bool = False) -> Any:
    """Return plain data of legal depth and values; ``counts``: integers may be as large as spaces."""
    level: list[Any] = [data]
    depth = -1
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise RequestError(TOO_DEEP)
        inner: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is str:
                check_text(value)
            elif kind is int and not counts:
                check_int(value)
            elif kind is float:
                check_float(value, repr(value))
            elif kind is dict:
                for key in value:
                    check_text(key, "a key")
                inner += value.values()
            elif kind is list:
                inner += value
        level = inner
    return data
