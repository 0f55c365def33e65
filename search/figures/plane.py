"""The plane of a figure: scales, grid and symbols as SVG.

Coordinates are percentages, so that a figure follows the page's width while text and symbols keep their size.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forerun.search.figures.markup import Safe, tag

COLOURS = (2, 5, 0, 4, 3, 6, 7, 1, 8, 9)
"""Slots of ``page.css`` in the order in which categories take them: neighbours differ most."""
SHAPES = (
    "M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0z",
    "M-4,-4h8v8h-8z",
    "M0,-5.2L5,3.8L-5,3.8z",
    "M0,-5.6L5.6,0L0,5.6L-5.6,0z",
    "M0,5.2L5,-3.8L-5,-3.8z",
    "M-1.7,-5h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z",
    "M-5,-2.5L-2.5,-5L0,-2.5L2.5,-5L5,-2.5L2.5,0L5,2.5L2.5,5L0,2.5L-2.5,5L-5,2.5L-2.5,0z",
    "M-5,0L-2.5,-4.4L2.5,-4.4L5,0L2.5,4.4L-2.5,4.4z",
)
"""Outlines of the symbols: circle, square, triangle, diamond, triangle down, plus, cross, hexagon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """One axis: ``low`` is at 0 %, ``high`` at 100 %; ``log``: by logarithm, both above 0."""

    low: float
    high: float
    log: bool = False

    def share(self, value: float, *, flip: bool = False) -> float:
        """Return the position of a value in per cent; ``flip`` counts from the upper end."""
        low, high, at = (
            (math.log(end) for end in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        )
        share = (at - low) / (high - low)
        return round(100 * (1 - share if flip else share), 2)

    def percent(self, value: float, *, flip: bool = False) -> str:
        """Return the position of a value as SVG text."""
        return f"{self.share(value, flip=flip):.2f}%"

    def ticks(self) -> list[float]:
        """Return the round numbers that label the axis."""
        return log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high)


def scale_of(values: Sequence[float], *, log: bool = False) -> Scale:
    """Return a scale of the values with a margin of 5 %; it may exclude zero, since only positions matter."""
    low, high = min(values), max(values)
    if log:
        margin = (high / low) ** 0.05 if high > low else 1.5
        return Scale(low=low / margin, high=high * margin, log=True)
    margin = 0.05 * (high - low) or 0.05 * high
    return Scale(low=max(0.0, low - margin), high=high + margin)


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Return round numbers within [low, high], about ``count`` of them.

    >>> ticks(0.0, 80.0)
    [0.0, 20.0, 40.0, 60.0, 80.0]
    """
    if not high > low:
        return [low]
    raw = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 of every decade in [low, high]; decades alone if too many, any round numbers if under three.

    >>> log_ticks(0.3, 12.0)
    [0.5, 1.0, 2.0, 5.0, 10.0]
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5)]
    found = [value for value in found if low <= value <= high]
    if len(found) < 3:
        return ticks(low, high)
    return found if len(found) <= 8 else [value for value in found if math.log10(value).is_integer()]


def grid(x: Scale, y: Scale, *, x_text: Callable[[float], str] = "{:g}".format) -> Safe:
    """Return lines and numbers of both axes."""
    parts = []
    for value in x.ticks():
        at = x.percent(value)
        parts.append(tag("line", x1=at, x2=at, y1="0", y2="100%"))
        parts.append(tag("text", x_text(value), x=at, y="100%", dy="18", text_anchor="middle"))
    for value in y.ticks():
        at = y.percent(value, flip=True)
        parts.append(tag("line", x1="0", x2="100%", y1=at, y2=at))
        parts.append(tag("text", number(value), x="0", dx="-8", y=at, dy="4", text_anchor="end"))
    return tag("g", *parts, class_="grid", aria_hidden="true")


def symbol_definitions() -> Safe:
    """Return the definitions of all symbols, once per page."""
    return tag("defs", *(tag("path", id=f"s{i}", d=shape) for i, shape in enumerate(SHAPES)))


def symbol_of(kind: int) -> dict[str, str]:
    """Return the attributes of a ``use`` element with the shape and colour of category ``kind``."""
    return {"href": f"#s{kind % len(SHAPES)}", "class_": f"pt c{COLOURS[kind % len(COLOURS)]}"}


def key_of(kind: int) -> Safe:
    """Return the legend symbol of category ``kind``."""
    return tag("svg", tag("use", **symbol_of(kind)), class_="key")


def number(value: float) -> str:
    """Return a figure with about three digits and thousands separators: ``61,297``, ``38.3``, ``0.145``."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
