"""Quantities in the notation of users, parsed and formatted: ``80GiB``, ``400Gb/s``, ``3.4us``, ``1.5T``.

SI prefixes are powers of 1000, ``Ki``, ``Mi``, ``Gi``, ``Ti`` and ``Pi`` powers of 1024 (IEC 80000-13). ``b`` is a bit,
``B`` a byte, and the case matters. A plain number is in the base unit (bytes, bytes/s, seconds, one).
A parser raises RequestError for a text that is no finite number of at least zero in one of its units.
"""

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal

from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import quoted
from forerun.spaces.plain import NO_NUMBER

TIMES = 2.0
"""Ratio of two quantities from which it is written as a factor, no longer in per cent."""
_SI: Mapping[str, float] = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_IEC: Mapping[str, float] = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_COUNTS: Mapping[str, float] = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_SECONDS: Mapping[str, float] = {"": 1.0, "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
_LONGER: Mapping[str, float] = {"min": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"([-+]?(?:[0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*([^\s0-9]?.*)")


def parse_bytes(text: str | float) -> float:
    """Return bytes: ``80GiB``, ``141 GB``, ``512MB``, ``1e9``."""
    units = {f"{prefix}B": factor for prefix, factor in (*_SI.items(), *_IEC.items())}
    return _parse(text, "a size", {"": 1.0, **units}, "80GiB or 80GB", 1e-6, 1e24)


def parse_rate(text: str | float) -> float:
    """Return bytes per second: ``400Gb/s`` (bits), ``450GB/s`` (bytes), ``100Gbps``, ``25Gbit/s``."""
    units = {"": 1.0}
    for prefix, factor in (*_SI.items(), *_IEC.items()):
        units |= {f"{prefix}B/s": factor, f"{prefix}Bps": factor}
        units |= {f"{prefix}{bit}": factor / 8 for bit in ("b/s", "bps", "bit/s", "bits/s")}
    return _parse(text, "a rate", units, "400Gb/s (bits) or 450GB/s (bytes)", 1e-6, 1e21)


def parse_flops(text: str | float) -> float:
    """Return FLOP/s: ``989TFLOP/s``, ``989T``."""
    units = {f"{prefix}{unit}": factor for prefix, factor in _SI.items() for unit in ("", "FLOP/s", "FLOPS", "OP/s")}
    return _parse(text, "a compute rate", units, "989TFLOP/s", 1e-6, 1e27)


def parse_seconds(text: str | float) -> float:
    """Return seconds: ``3.4us``, ``2ms``, ``1.5h``."""
    return _parse(text, "a time", {**_SECONDS, **_LONGER}, "3.4us", 1e-18, 1e15)


def parse_count(text: str | float) -> float:
    """Return a plain number: ``15T`` (tokens), ``70B`` (parameters), ``4096``, ``1e9``."""
    return _parse(text, "a count", _COUNTS, "15T or 70B", 1e-12, 1e30)


def parse_share(text: str | float) -> float:
    """Return a share: ``5%``, ``0.05``."""
    return _parse(text, "a share", {"": 1.0, "%": 0.01}, "5% or 0.05", 1e-12, 1e6)


def whole_number(text: str) -> int | None:
    """Return a number written with at most 18 ASCII digits, None for any other text.

    >>> whole_number("12"), whole_number("1.5"), whole_number("²")
    (12, None, None)
    """
    return int(text) if len(text) <= 18 and text.isascii() and text.isdigit() else None


def with_unit(parse: Callable[[str | float], float], text: str) -> float:
    """Parse a text with a required unit; a bare number could hide a factor of 1e9."""
    value = parse(text)
    if value and text.rstrip()[-1].isdigit():
        raise RequestError(f"write the unit too, as in 400Gb/s, 80GiB or 2us, but got {text.strip()}")
    return value


def format_bytes(value: float) -> str:
    """Return ``value`` bytes in binary units: ``79.1 GiB``."""
    return _format(
        value, (("PiB", 2.0**50), ("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)), "B"
    )


def format_rate(value: float) -> str:
    """Return ``value`` bytes per second in decimal units: ``450 GB/s``."""
    return _format(value, (("PB/s", 1e15), ("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)), "B/s")


def format_seconds(value: float) -> str:
    """Return ``value`` seconds in a suitable unit: ``3.4 us``, ``12.5 s``, ``2.1 h``, ``35 d``."""
    scale = (("d", 86400.0), ("h", 3600.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
    return _format(value, scale, "ns", last=1e-9)


def format_count(value: float) -> str:
    """Return ``value`` with a suffix: ``70.6B``, ``4.1K``, ``512``."""
    return _format(value, (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)), "").replace(" ", "")


def _parse(text: str | float, what: str, units: Mapping[str, float], example: str, least: float, most: float) -> float:
    if isinstance(text, bool):
        raise RequestError(f"{what} is a number with a unit, like {example}, but got {text}")
    if isinstance(text, int | float):
        number, factor = float(text) if abs(text) < 1e300 else math.inf, 1.0
    else:
        match = _QUANTITY.fullmatch(text.strip()) if len(text) <= 60 else None
        if match is None:
            raise RequestError(f"{what} is a number with a unit, like {example}, but got {quoted(text)}")
        unit = match[2].strip()
        if unit not in units:
            raise RequestError(f"{quoted(unit)} is not a unit of {what}; write it like {example}")
        number, factor = float(match[1].replace(",", "").replace("_", "")), units[unit]
    if not (math.isfinite(number) and number >= 0):
        raise RequestError(f"{what} is finite and at least 0, but got {text}; write it like {example}")
    value = number * factor
    if value and not least <= value <= most:
        raise RequestError(
            f"{what} is 0 or {least:g} to {most:g} in its base unit, but got {quoted(text)}; write it like {example}"
        )
    return value


def _format(value: float, scale: tuple[tuple[str, float], ...], base: str, *, last: float = 1.0) -> str:
    """Return ``value`` in the largest unit in which it is at least 1, to three digits."""
    if not math.isfinite(value):
        return NO_NUMBER
    size = abs(value)
    unit, factor = next(((name, factor) for name, factor in scale if size >= 0.9995 * factor), (base, last))
    number = value / factor
    digits = 0 if abs(number) >= 99.95 or number == int(number) else 1 if abs(number) >= 9.995 else 2
    text = f"{number:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}".strip()


READABLE = 10**15
"""Integers from this one on are shown by their first digits."""


def format_whole(number: int) -> str:
    """Return an integer in full, or to three digits if it is too long to read.

    >>> format_whole(63_546), format_whole(7 * 10**67)
    ('63,546', '7.00e+67')
    """
    return f"{number:,}" if number < READABLE else f"{Decimal(number):.2e}"
