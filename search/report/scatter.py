"""Throughput against memory, cost or GPUs as SVG.

Coordinates are percentages of the plot, so that it follows the page's width while text and symbols keep their size.
Every view has its own grid and front; the page's script shows one of them and moves the points.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.search.board.rows import SECONDS_PER_HOUR, Row
from forerun.search.flat.fronts import front
from forerun.search.report.axes import Value, distinct, first_of
from forerun.search.report.markup import Safe, joined, tag
from forerun.search.report.words import number

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
class View:
    """One choice of axes: ``across`` is better where it is smaller, ``up`` where it is larger. ``limit`` is a line."""

    name: str
    across_title: str
    up_title: str
    across: Callable[[Row], float]
    up: Callable[[Row], float]
    limit: float | None = None


def views_of(rows: Sequence[Row], *, several: bool) -> list[View]:
    """Return the views that say something; ``several``: rows differ in GPUs.

    On one number of GPUs cost follows from throughput, so that memory is all there is to trade against.
    """
    memory = View(
        name="memory",
        across_title="peak memory of the fullest GPU (GiB)",
        up_title="tokens per second and GPU",
        across=lambda row: row.peak_memory_gib,
        up=lambda row: row.tokens_per_s_per_gpu,
        limit=max(row.memory_limit_gib for row in rows),
    )
    if not several:
        return [memory]
    gpus = View(
        name="GPUs",
        across_title="GPUs",
        up_title="tokens per second",
        across=lambda row: float(row.gpus),
        up=lambda row: row.tokens_per_s,
    )
    priced = all(row.cost_usd_per_million_tokens is not None for row in rows)
    cost = View(
        name="cost",
        across_title="USD per million tokens" if priced else "GPU hours per million tokens",
        up_title="tokens per second",
        across=_usd if priced else _gpu_hours,
        up=lambda row: row.tokens_per_s,
    )
    return [memory, cost, gpus]


def _usd(row: Row) -> float:
    return row.cost_usd_per_million_tokens or 0.0


def _gpu_hours(row: Row) -> float:
    return 1e6 / row.tokens_per_s_per_gpu / SECONDS_PER_HOUR


def pareto_front(rows: Sequence[Row], view: View | None = None) -> list[int]:
    """Return the places of rows that no other beats in both axes of a view (default: memory), smallest across first."""
    chosen = view or views_of(rows, several=False)[0]
    keys = np.array([[chosen.across(row) for row in rows], [-chosen.up(row) for row in rows]])
    return [int(place) for place in front(np.arange(len(rows)), keys, np.ones(len(rows), dtype=bool))]


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


def scatter(
    rows: Sequence[Row], columns: Mapping[str, Sequence[Value]], views: Sequence[View], own: Row | None = None
) -> Safe:
    """Return the figure with its first view shown; ``columns`` has the axes by whose values the points can be told
    apart, ``own`` is the user's present run."""
    chosen = first_of(columns, ("pp", "tp"))
    groups = distinct(columns[chosen]) if chosen else []
    kinds = [groups.index(value) for value in columns[chosen]] if chosen else [0] * len(rows)
    places = coordinates(rows, views[0], own)
    points = [
        tag(
            "use",
            href=f"#s{kind % len(SHAPES)}",
            class_=f"pt c{COLOURS[kind % len(COLOURS)]}",
            x=f"{across}%",
            y=f"{up}%",
            data_i=place,
        )
        for place, ((across, up), kind) in reversed(list(enumerate(zip(places, kinds, strict=True))))
    ]
    defs = tag("defs", *(tag("path", id=f"s{i}", d=shape) for i, shape in enumerate(SHAPES)))
    svg = tag(
        "svg",
        defs,
        *(_backdrop(rows, view, own, shown=view is views[0]) for view in views),
        tag("g", *points, id="points"),
        tag("g", tag("path", d="M-8,0a8,8 0 1,0 16,0a8,8 0 1,0 -16,0z"), id="ring", visibility="hidden"),
        id="scatter",
        role="application",
        tabindex="0",
        aria_label=(
            f"Scatter of {len(rows)} strategies, {views[0].up_title} against {views[0].across_title}. "
            "Arrow keys go from rank to rank, Enter shows the row."
        ),
    )
    plot = tag("div", svg, tag("div", id="tip", role="status", hidden=True), class_="plot")
    x_title = tag("p", views[0].across_title, class_="x-title", id="x-title")
    y_title = tag("p", views[0].up_title, class_="y-title", id="y-title")
    return joined([_controls(columns, chosen, groups, views), y_title, plot, x_title])


def coordinates(rows: Sequence[Row], view: View, own: Row | None = None) -> list[tuple[float, float]]:
    """Return the place of every row in per cent of the plot's width and height, from the left and from the top."""
    x, y = _scales(rows, view, own)
    return [(_share(view.across(row), x), _share(view.up(row), y, flip=True)) for row in rows]


def views_data(rows: Sequence[Row], views: Sequence[View], own: Row | None = None) -> dict[str, object]:
    """Return what the page's script needs to go from one view to another."""
    return {
        view.name: {
            "x": [across for across, _ in coordinates(rows, view, own)],
            "y": [up for _, up in coordinates(rows, view, own)],
            "titles": [view.across_title, view.up_title],
        }
        for view in views
    }


def _backdrop(rows: Sequence[Row], view: View, own: Row | None, *, shown: bool) -> Safe:
    """Return grid, limit, front and the user's run of one view."""
    x, y = _scales(rows, view, own)
    return tag(
        "g",
        _grid(x, y),
        None if view.limit is None else _limit_line(view.limit, x),
        _front_lines(rows, view, x, y),
        None if own is None else _own_cross(own, view, x, y),
        class_="view" if shown else "view away",
        data_view=view.name,
    )


def _scales(rows: Sequence[Row], view: View, own: Row | None) -> tuple[tuple[float, float], tuple[float, float]]:
    across = [view.across(row) for row in rows] + ([] if view.limit is None else [view.limit])
    up = [view.up(row) for row in rows]
    if own is not None:
        across, up = _near(across, view.across(own)), _near(up, view.up(own))
    return _scale(across), _scale(up)


def _near(values: list[float], own: float) -> list[float]:
    """Return values with the user's, unless it lies so far off that the others would be squeezed together."""
    low, high = min(values), max(values)
    reach = (high - low) or 0.1 * abs(high)
    return [*values, own] if low - reach <= own <= high + reach else values


def _controls(
    columns: Mapping[str, Sequence[Value]], chosen: str | None, groups: Sequence[Value], views: Sequence[View]
) -> Safe:
    """Return the legend, the choice of axes and of what colours and symbols stand for."""
    against = None
    if len(views) > 1:
        named = [tag("option", view.name) for view in views]
        against = tag("label", tag("span", "throughput against"), tag("select", *named, id="view"))
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
            tag("div", against, select if columns else None, class_="fields", id="colour-form", hidden=True),
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


def _front_lines(rows: Sequence[Row], view: View, x: tuple[float, float], y: tuple[float, float]) -> Safe:
    places = pareto_front(rows, view)
    lines = []
    for here, there in itertools.pairwise(places):
        x1, x2 = (_percent(view.across(rows[i]), x) for i in (here, there))
        y1, y2 = (_percent(view.up(rows[i]), y, flip=True) for i in (here, there))
        lines.append(tag("line", x1=x1, x2=x2, y1=y1, y2=y1))
        lines.append(tag("line", x1=x2, x2=x2, y1=y1, y2=y2))
    return tag("g", *lines, class_="front", aria_hidden="true")


def _own_cross(own: Row, view: View, x: tuple[float, float], y: tuple[float, float]) -> Safe:
    """Return a cross with a name at the place of the user's run, on the border where that is off the scale."""
    across, up = view.across(own), view.up(own)
    inside = min(max(across, x[0]), x[1]), min(max(up, y[0]), y[1])
    left, top = _percent(inside[0], x), _percent(inside[1], y, flip=True)
    nested = tag("svg", tag("path", d="M-8,-8L8,8M-8,8L8,-8"), x=left, y=top, overflow="visible")
    high, far = inside[1] > (y[0] + y[1]) / 2, _share(inside[0], x)
    anchor = "start" if far < 15 else "end" if far > 85 else "middle"
    name = "your run" if inside == (across, up) else f"your run, off the scale: {number(across)}, {number(up)}"
    text = tag("text", name, x=left, y=top, dy="24" if high else "-14", text_anchor=anchor)
    return tag("g", nested, text, class_="own-cross", aria_hidden="true")


def _scale(values: Sequence[float]) -> tuple[float, float]:
    """Return a range that holds the values with a margin of 5%; not from zero, for a scatter compares places."""
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.05 * high
    return max(0.0, low - margin), high + margin


def _percent(value: float, scale: tuple[float, float], *, flip: bool = False) -> str:
    return f"{_share(value, scale, flip=flip):.2f}%"


def _share(value: float, scale: tuple[float, float], *, flip: bool = False) -> float:
    """Return the place of a value on a scale in per cent; ``flip`` counts from the upper end."""
    low, high = scale
    share = (value - low) / (high - low)
    return round(100 * (1 - share if flip else share), 2)
