"""Throughput per GPU against peak memory as SVG.

Coordinates are percentages of the plot, so that it follows the page's width while text and symbols keep their size.
"""

import itertools
import math
from collections.abc import Mapping, Sequence

from forerun.search.report.axes import Value, distinct, first_of
from forerun.search.report.markup import Safe, joined, tag
from forerun.search.report.words import number
from forerun.search.rows import Row

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


def pareto_front(rows: Sequence[Row]) -> list[int]:
    """Return the places of rows that no other beats in throughput per GPU and peak memory, least memory first."""
    order = sorted(range(len(rows)), key=lambda i: (rows[i].peak_memory_gib, -rows[i].tokens_per_s_per_gpu))
    front: list[int] = []
    for place in order:
        if not front or rows[place].tokens_per_s_per_gpu > rows[front[-1]].tokens_per_s_per_gpu:
            front.append(place)
    return front


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


def scatter(rows: Sequence[Row], columns: Mapping[str, Sequence[Value]], own: Row | None = None) -> Safe:
    """Return the figure; ``columns`` has the axes by whose values the points can be told apart, ``own`` is the user's
    present run."""
    drawn = [*rows, *([] if own is None else [own])]
    limit = max(row.memory_limit_gib for row in rows)
    x = _scale([row.peak_memory_gib for row in drawn] + [limit])
    y = _scale([row.tokens_per_s_per_gpu for row in drawn])
    chosen = first_of(columns, ("pp", "tp"))
    groups = distinct(columns[chosen]) if chosen else []
    kinds = [groups.index(value) for value in columns[chosen]] if chosen else [0] * len(rows)
    points = [
        tag(
            "use",
            href=f"#s{kind % len(SHAPES)}",
            class_=f"pt c{COLOURS[kind % len(COLOURS)]}",
            x=_percent(row.peak_memory_gib, x),
            y=_percent(row.tokens_per_s_per_gpu, y, flip=True),
            data_i=place,
        )
        for place, (row, kind) in reversed(list(enumerate(zip(rows, kinds, strict=True))))
    ]
    defs = tag("defs", *(tag("path", id=f"s{i}", d=shape) for i, shape in enumerate(SHAPES)))
    svg = tag(
        "svg",
        defs,
        _grid(x, y),
        _limit_line(limit, x),
        _front_lines(rows, x, y),
        None if own is None else _own_cross(own, x, y),
        tag("g", *points, id="points"),
        tag("g", tag("path", d="M-8,0a8,8 0 1,0 16,0a8,8 0 1,0 -16,0z"), id="ring", visibility="hidden"),
        id="scatter",
        role="application",
        tabindex="0",
        aria_label=(
            f"Scatter of {len(rows)} strategies, throughput per GPU against peak memory. "
            "Arrow keys go from rank to rank, Enter shows the row."
        ),
    )
    plot = tag("div", svg, tag("div", id="tip", role="status", hidden=True), class_="plot")
    x_title = tag("p", "peak memory of the fullest GPU (GiB)", class_="x-title")
    y_title = tag("p", "tokens per second and GPU", class_="y-title")
    return joined([_controls(columns, chosen, groups), y_title, plot, x_title])


def _controls(columns: Mapping[str, Sequence[Value]], chosen: str | None, groups: Sequence[Value]) -> Safe:
    """Return the legend and the choice of what colours and symbols stand for."""
    options = [tag("option", axis, selected=axis == chosen) for axis in columns]
    select = tag("label", tag("span", "colour and symbol by"), tag("select", *options, id="colour"), id="colouring")
    items = [
        tag(
            "li",
            tag(
                "svg", tag("use", href=f"#s{i % len(SHAPES)}", class_=f"pt c{COLOURS[i % len(COLOURS)]}"), class_="key"
            ),
            f" {chosen} {value}",
        )
        for i, value in enumerate(groups)
    ]
    return joined(
        [
            tag("div", select, class_="fields", id="colour-form", hidden=True) if columns else None,
            tag("ul", *items, class_="legend", id="groups"),
        ]
    )


def _grid(x: tuple[float, float], y: tuple[float, float]) -> Safe:
    parts = []
    for value in ticks(*x):
        at = _percent(value, x)
        parts.append(tag("line", x1=at, x2=at, y1="0", y2="100%"))
        parts.append(tag("text", f"{value:g}", x=at, y="100%", dy="18", text_anchor="middle"))
    for value in ticks(*y):
        at = _percent(value, y, flip=True)
        parts.append(tag("line", x1="0", x2="100%", y1=at, y2=at))
        parts.append(tag("text", number(value), x="0", dx="-8", y=at, dy="4", text_anchor="end"))
    return tag("g", *parts, class_="grid", aria_hidden="true")


def _limit_line(limit: float, x: tuple[float, float]) -> Safe:
    at = _percent(limit, x)
    return tag(
        "g",
        tag("line", x1=at, x2=at, y1="0", y2="100%"),
        tag("text", f"limit {limit:.1f}", x=at, y="0", dx="4", dy="-6", text_anchor="end"),
        class_="limit-line",
        aria_hidden="true",
    )


def _front_lines(rows: Sequence[Row], x: tuple[float, float], y: tuple[float, float]) -> Safe:
    front = pareto_front(rows)
    lines = []
    for here, there in itertools.pairwise(front):
        x1, x2 = (_percent(rows[i].peak_memory_gib, x) for i in (here, there))
        y1, y2 = (_percent(rows[i].tokens_per_s_per_gpu, y, flip=True) for i in (here, there))
        lines.append(tag("line", x1=x1, x2=x2, y1=y1, y2=y1))
        lines.append(tag("line", x1=x2, x2=x2, y1=y1, y2=y2))
    return tag("g", *lines, class_="front", aria_hidden="true")


def _own_cross(own: Row, x: tuple[float, float], y: tuple[float, float]) -> Safe:
    """Return a cross with a name at the place of the user's run."""
    left, top = _percent(own.peak_memory_gib, x), _percent(own.tokens_per_s_per_gpu, y, flip=True)
    nested = tag("svg", tag("path", d="M-8,-8L8,8M-8,8L8,-8"), x=left, y=top, overflow="visible")
    high = own.tokens_per_s_per_gpu > (y[0] + y[1]) / 2
    text = tag("text", "your run", x=left, y=top, dy="24" if high else "-14", text_anchor="middle")
    return tag("g", nested, text, class_="own-cross", aria_hidden="true")


def _scale(values: Sequence[float]) -> tuple[float, float]:
    """Return a range that holds the values with a margin of 5%; not from zero, for a scatter compares places."""
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.05 * high
    return max(0.0, low - margin), high + margin


def _percent(value: float, scale: tuple[float, float], *, flip: bool = False) -> str:
    low, high = scale
    share = (value - low) / (high - low)
    return f"{100 * (1 - share if flip else share):.2f}%"
