"""Kinds of flag values, with reader and JSON schema."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import quoted

if TYPE_CHECKING:
    from forerun.simulator.improve.operator_changes import OperatorChange
    from forerun.spaces.opgraph.batch import PerDevice

TOKENS_WORD = "tokens"
LEAST, LARGEST, MOST_WORKERS = 1e-12, 1e18, 4096
"""Limits of numbers in flags, and of worker processes or tasks."""


class Unreadable(ValueError):
    """An invalid value of a flag; the text continues a sentence that begins with the flag."""


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A kind of value: ``read`` converts a word, ``schema`` is its JSON schema."""

    name: str
    read: Callable[[str], Any]
    schema: Mapping[str, Any]
    unit_word: str = ""
    """Optional separate word after the value."""


def whole(text: str) -> int:
    """Read a whole number of at least 1."""
    digits = text.replace("_", "").replace(",", "")
    if not digits.isdecimal() or len(digits) > 18 or int(digits) < 1:
        raise Unreadable(f"must be a whole number of at least 1, but got {quoted(text)}")
    return int(digits)


def tokens(text: str) -> int:
    """Read a number of tokens: ``8192``, ``8k``."""
    from forerun.search.request.quantities import token_count

    try:
        return token_count(text)
    except RequestError as error:
        raise Unreadable(str(error)) from None


def batch(text: str) -> "int | str | PerDevice":
    """Read a global batch: a whole number, one per GPU (``64/gpu``, ``max/gpu``), or tokens, which remain text."""
    from forerun.spaces.opgraph.batch import LARGEST, MAXIMUM, PerDevice

    amount, blank, word = text.partition(" ")
    if blank:
        if word != TOKENS_WORD:
            raise Unreadable(f"must be a whole number, or like 64/gpu or 4M tokens, but got {quoted(text)}")
        tokens(amount)
        return text
    number, slash, unit = text.lower().partition("/")
    if slash and unit not in ("gpu", "device"):
        raise Unreadable(f"must be a whole number or one per GPU like 64/gpu or max/gpu, but got {quoted(text)}")
    if slash and number == MAXIMUM:
        return LARGEST
    if text[-1:] in "kKmM" and text[:1].isdigit():
        raise Unreadable(f"counts sequences; for tokens write {quoted(text + ' ' + TOKENS_WORD)}")
    return PerDevice(whole(number)) if slash else whole(text)


def positive(text: str) -> float:
    """Read a number with finite results: ``LEAST`` to ``LARGEST``."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not LEAST <= number <= LARGEST:
        raise Unreadable(
            f"must be a number above 0 ({LEAST:g} or more) and at most {LARGEST:g}, but got {quoted(text)}"
        )
    return number


def price(text: str) -> float | str:
    """Read a price in USD, or the name of a catalogue of prices, which remains text."""
    from forerun.search.request.prices import CATALOGUE

    if text.startswith("sky:") and not CATALOGUE.fullmatch(text):
        raise Unreadable(f"must be a number, or sky:CLOUD as in sky:aws, but got {quoted(text)}")
    return text if text.startswith("sky:") else positive(text)


def seed(text: str) -> int:
    """Read the seed of a generator of random numbers: 32 bits, valid for all generators."""
    if not text.isdecimal() or len(text) > 10 or int(text) >= 2**32:
        raise Unreadable(f"must be a whole number from 0 to {2**32 - 1}, but got {quoted(text)}")
    return int(text)


def signed(text: str) -> int:
    """Read a whole number of either sign."""
    if not text.removeprefix("-").isdecimal() or len(text) > 18:
        raise Unreadable(f"must be a whole number, but got {quoted(text)}")
    return int(text)


def number(text: str) -> float:
    """Read a number of either sign."""
    try:
        return float(text)
    except ValueError:
        raise Unreadable(f"must be a number, but got {quoted(text)}") from None


def zero_or_more(text: str) -> int:
    """Read a whole number of zero or more."""
    from forerun.spaces.units import whole_number

    value = whole_number(text)
    if value is None or value >= 10**9:
        raise Unreadable(f"must be a whole number of zero or more, but got {quoted(text)}")
    return value


def share(text: str) -> float:
    """Read a share from 0 to below 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise Unreadable(f"must be between 0 and 1, but got {quoted(text)}")
    return value


def worker_count(text: str) -> int:
    """Read a number of worker processes."""
    count = whole(text)
    if count > MOST_WORKERS:
        raise Unreadable(f"must be at most {MOST_WORKERS}, but got {quoted(text)}")
    return count


def count(text: str) -> float:
    """Read a count above 0, with or without a suffix: ``15T``."""
    from forerun.spaces.units import parse_count

    try:
        parsed = parse_count(text)
    except RequestError as error:
        raise Unreadable(str(error)) from None
    return positive(str(parsed))


def straggler(text: str) -> tuple[int, float]:
    """Read a slow worker and its factor: ``3=1.2`` (``3:1.2`` too)."""
    device, equals, factor = text.replace(":", "=", 1).partition("=")
    if not equals or not device.isdecimal() or len(device) > 9:
        raise Unreadable(f"must be a number and a factor, as in 3=1.2, but got {quoted(text)}")
    return int(device), positive(factor)


def search_number(text: str) -> "int | str":
    """Read the number of a search of a sweep, or ``all``."""
    return text if text == "all" else whole(text)


def operator_change(text: str) -> "OperatorChange":
    """Read ``OPERATOR[@RANK]=X`` (a factor) or ``OPERATOR[@RANK]=+TIME`` (``-TIME``)."""
    from forerun.simulator.improve.operator_changes import OperatorChange
    from forerun.spaces.units import parse_seconds

    name, equals, value = text.rpartition("=")
    at = re.fullmatch(r"(.+)@(\d{1,9})", name)
    operators, rank = (at[1], int(at[2])) if at else (name, None)
    try:
        if not (equals and operators):
            raise ValueError
        if value[:1] in "+-" and value[-1:].isalpha():  # a bare -1 is not a factor
            delay_s = parse_seconds(value[1:]) * (-1 if value[0] == "-" else 1)
            return OperatorChange(operators=operators, rank=rank, delay_s=delay_s)
        if not 0 <= (factor := float(value)) <= 1e6:
            raise ValueError
        return OperatorChange(operators=operators, rank=rank, factor=factor)
    except (ValueError, RequestError):
        raise Unreadable(
            f"must be an operator and a factor or a time, as aten::relu=0.5 or all_reduce@3=+2ms, but got {text[:80]!r}"
        ) from None


def _integer(least: int, most: int | None = None) -> dict[str, Any]:
    return {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})


_NUMBER = {"type": "number", "exclusiveMinimum": 0}
_QUANTITY = {"type": ["number", "string"]}
TEXT = ValueKind("text", str, {"type": "string"})
SWITCH = ValueKind("switch", str, {"type": "boolean"})
PATH = ValueKind("path", Path, {"type": "string"})
OUTPUT = ValueKind("file to write", Path, {"type": "string"})
WHOLE = ValueKind("whole number", whole, _integer(1))
ZERO_OR_MORE = ValueKind("whole number", zero_or_more, _integer(0, 10**9))
BATCH = ValueKind("batch", batch, {"type": ["integer", "string"]}, TOKENS_WORD)
TOKENS = ValueKind("tokens", tokens, {"type": ["integer", "string"]})
POSITIVE = ValueKind("number above 0", positive, _NUMBER)
PRICE = ValueKind("price", price, _QUANTITY)
NUMBER = ValueKind("number", number, {"type": "number"})
SHARE = ValueKind("share", share, {"type": "number", "minimum": 0, "exclusiveMaximum": 1})
SEED = ValueKind("seed", seed, _integer(0, 2**32 - 1))
SIGNED = ValueKind("whole number", signed, {"type": "integer"})
WORKERS = ValueKind("number of workers", worker_count, _integer(1, MOST_WORKERS))
COUNT = ValueKind("count", count, _QUANTITY)
STRAGGLER = ValueKind("straggler", straggler, {"type": "string"})
SEARCH_NUMBER = ValueKind("number of a search, or all", search_number, {"type": ["integer", "string"]})
CHANGE = ValueKind("change of operators", operator_change, {"type": "string"})
KINDS = {
    "text": TEXT,
    "switch": SWITCH,
    "path": PATH,
    "output": OUTPUT,
    "whole": WHOLE,
    "zero or more": ZERO_OR_MORE,
    "batch": BATCH,
    "tokens": TOKENS,
    "positive": POSITIVE,
    "price": PRICE,
    "number": NUMBER,
    "share": SHARE,
    "seed": SEED,
    "signed": SIGNED,
    "workers": WORKERS,
    "count": COUNT,
    "straggler": STRAGGLER,
    "search number": SEARCH_NUMBER,
    "change": CHANGE,
}
"""Kinds by their names in flag data."""
