"""Bars: HTML boxes whose widths are percentages, so that they follow the page's width and their text does not shrink.

A part has a colour, a hatching and a place in the order of the legend, and every figure repeats its numbers in a table:
no information depends on colour alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forerun.search.answer.explain.explain import MEANING, MEMORY_MEANING
from forerun.search.figures.markup import Safe, joined, numbers_line, scrolled, table, tag

LABELLED = 0.07
"""Share of the widest bar from which a part is labelled with its share."""
COUNTED = 0.0005
"""Share of any bar from which a part is in the legend: the least printed as 0.1%."""

TIME_SLOTS: Mapping[str, int] = {
    "compute": 0,
    "recompute": 1,
    "tensor": 2,
    "context": 3,
    "expert": 4,
    "pipeline": 5,
    "bubble": 6,
    "data": 7,
    "optimizer": 8,
    "host": 9,
    "forward": 0,
    "backward": 1,
    "halo": 3,
    "collective": 2,
    "tail": 2,
    "p2p": 5,
    "gradient": 7,
    "straggler wait": 4,
    "update": 8,
    "input": 9,
}
"""Part of a step -> colour and hatching in ``page.css``."""
MEMORY_SLOTS: Mapping[str, int] = {
    "parameters": 0,
    "gradients": 1,
    "optimizer": 8,
    "activations": 2,
    "working": 3,
    "logits": 4,
    "buffers": 5,
    "in use": 0,
    "reserve": 9,
}
"""Part of memory -> colour and hatching in ``page.css``."""
DRAWN = 0.01
"""Share of an unlabelled bar from which a part is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One stacked bar.

    ``parts`` are amounts in ``unit``; ``value`` is the text of the total. ``limit`` is drawn as a line (None: no
    limit).
    """

    label: str
    value: str
    parts: Mapping[str, float]
    limit: float | None = None

    @property
    def total(self) -> float:
        """The sum of the parts."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Several stacked bars on one scale.

    ``slots``: part -> colour; ``meaning``: part -> meaning. ``unit`` heads the table of numbers, with ``digits``
    decimals; ``rows`` is the name of its rows.
    """

    bars: Sequence[Bar]
    slots: Mapping[str, int]
    meaning: Mapping[str, str]
    unit: str
    digits: int
    rows: str

    @property
    def full(self) -> float:
        """Value of the full width."""
        return max(*self.limits, *(bar.total for bar in self.bars), 0.0) or 1.0

    @property
    def limits(self) -> list[float]:
        """The different limits of the bars, lowest first."""
        return sorted({bar.limit for bar in self.bars if bar.limit is not None})

    def counted(self) -> list[str]:
        """Return the parts that are large enough in any bar, in order."""
        shown = (part for part in self.slots if part in self.bars[0].parts)
        return [part for part in shown if any(bar.parts[part] > COUNTED * bar.total for bar in self.bars)]


def time_bars(bars: Sequence[Bar], *, digits: int, rows: str = "strategy") -> Safe:
    """Return steps by part, in s with ``digits`` decimals: legend, bars and the table of their numbers."""
    return _stacked(Stack(bars=bars, slots=TIME_SLOTS, meaning=MEANING, unit="s", digits=digits, rows=rows))


def memory_bars(bars: Sequence[Bar], *, rows: str = "strategy") -> Safe:
    """Return memory by part, in GiB: legend, bars and the table of their numbers."""
    return _stacked(Stack(bars=bars, slots=MEMORY_SLOTS, meaning=MEMORY_MEANING, unit="GiB", digits=2, rows=rows))


def _stacked(stack: Stack) -> Safe:
    lines = [_row(stack, bar) for bar in stack.bars]
    return joined([_legend(stack), tag("ol", *lines, class_="bars"), _numbers(stack)])


def plain_bar(share: float) -> Safe:
    """Return one bar of a single part; ``share`` in [0, 1] of the width."""
    return tag(
        "div",
        tag("span", class_="seg k2 plain", style=f"width:{100 * share:.3f}%"),
        class_="track",
        aria_hidden="true",
    )


def step_bar(parts: Mapping[str, float], step_s: float) -> Safe:
    """Return the parts (s) of a step as one unlabelled bar."""
    segments = [
        tag("i", class_=f"k{slot}", style=f"width:{100 * parts[part] / step_s:.1f}%")
        for part, slot in TIME_SLOTS.items()
        if parts.get(part, 0.0) > DRAWN * step_s
    ]
    return tag("div", *segments, class_="track small", aria_hidden="true")


def _legend(stack: Stack) -> Safe:
    items = [
        tag("li", tag("span", class_=f"swatch k{stack.slots[part]}"), f" {part}", title=stack.meaning[part])
        for part in stack.counted()
    ]
    if stack.limits:
        limits = " to ".join(dict.fromkeys(f"{limit:.1f}" for limit in (stack.limits[0], stack.limits[-1])))
        items.append(tag("li", tag("span", class_="swatch limit-swatch"), f" limit {limits} {stack.unit}"))
    return tag("ul", *items, class_="legend")


def _row(stack: Stack, bar: Bar) -> Safe:
    segments: list[Safe] = []
    amounts = []
    for part in stack.counted():
        amount = bar.parts[part]
        share, width = amount / bar.total, amount / stack.full
        if share <= COUNTED:
            continue
        text = f"{part} {amount:.{stack.digits}f} {stack.unit} ({share:.1%})"
        amounts.append(text)
        segments.append(
            tag(
                "span",
                tag("b", f"{share:.0%}") if width >= LABELLED else None,
                class_=f"seg k{stack.slots[part]}",
                style=f"width:{100 * width:.3f}%",
                title=f"{text}: {stack.meaning[part]}",
            )
        )
    if bar.limit is not None:
        segments.append(tag("span", class_="limit", style=f"left:{100 * bar.limit / stack.full:.3f}%"))
    label = tag("div", tag("span", bar.label), tag("strong", bar.value), class_="bar-label")
    track = tag("div", *segments, class_="track", role="img", aria_label=f"{bar.value}: {', '.join(amounts)}")
    return tag("li", label, track)


def _numbers(stack: Stack) -> Safe:
    parts = stack.counted()
    lines = [numbers_line(bar.label, *(f"{bar.parts[part]:.{stack.digits}f}" for part in parts)) for bar in stack.bars]
    numbers = table((stack.rows, *parts), lines, caption=f"The same as numbers, in {stack.unit}")
    return tag("details", tag("summary", "Numbers"), scrolled(numbers, f"Numbers in {stack.unit}"))
