"""Throughput against memory, cost or GPUs as SVG.

Every view has a grid and a front; the page's script shows one view at a time and moves the points.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.search.board.rows import SECONDS_PER_HOUR, Row
from forerun.search.explore.flat.fronts import front
from forerun.search.figures.markup import Safe, joined, tag
from forerun.search.figures.plane import Scale, grid, key_of, number, scale_of, symbol_definitions, symbol_of
from forerun.search.report.axes import Value, distinct, first_of


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One choice of axes: smaller values of ``across`` and larger values of ``up`` are better. ``limit`` is a line."""

    name: str
    across_title: str
    up_title: str
    across: Callable[[Row], float]
    up: Callable[[Row], float]
    limit: float | None = None


def views_of(rows: Sequence[Row], *, several: bool) -> list[View]:
    """Return the informative views; ``several``: rows differ in GPUs.

    On one number of GPUs cost follows from throughput, so that memory is the only trade-off.
    """
    unit = rows[0].unit
    memory = View(
        name="memory",
        across_title="peak memory of the fullest GPU (GiB)",
        up_title=f"{unit}s per second and GPU",
        across=lambda row: row.peak_memory_gib,
        up=lambda row: row.throughput_per_gpu,
        limit=max(row.memory_limit_gib for row in rows),
    )
    if not several:
        return [memory]
    gpus = View(
        name="GPUs",
        across_title="GPUs",
        up_title=f"{unit}s per second",
        across=lambda row: float(row.gpus),
        up=lambda row: row.throughput,
    )
    priced = all(row.usd_per_million is not None for row in rows)
    cost = View(
        name="cost",
        across_title=f"{'USD' if priced else 'GPU hours'} per million {unit}s",
        up_title=f"{unit}s per second",
        across=_usd if priced else _gpu_hours,
        up=lambda row: row.throughput,
    )
    return [memory, cost, gpus]


def _usd(row: Row) -> float:
    return row.usd_per_million or 0.0


def _gpu_hours(row: Row) -> float:
    return 1e6 / row.throughput_per_gpu / SECONDS_PER_HOUR


def pareto_front(rows: Sequence[Row], view: View | None = None) -> list[int]:
    """Return the positions of Pareto-optimal rows in a view (default: memory), by ascending ``across``."""
    chosen = view or views_of(rows, several=False)[0]
    keys = np.array([[chosen.across(row) for row in rows], [-chosen.up(row) for row in rows]])
    return [int(place) for place in front(np.arange(len(rows)), keys, np.ones(len(rows), dtype=bool))]


def scatter(
    rows: Sequence[Row], columns: Mapping[str, Sequence[Value]], views: Sequence[View], present: Row | None = None
) -> Safe:
    """Return the figure with its first view shown.

    ``columns``: axes for colours and symbols; ``present``: the user's current run.
    """
    chosen = first_of(columns, ("pp", "tp"))
    groups = distinct(columns[chosen]) if chosen else []
    kinds = [groups.index(value) for value in columns[chosen]] if chosen else [0] * len(rows)
    places = coordinates(rows, views[0], present)
    points = [
        tag("use", **symbol_of(kind), x=f"{across}%", y=f"{up}%", data_i=place)
        for place, ((across, up), kind) in reversed(list(enumerate(zip(places, kinds, strict=True))))
    ]
    svg = tag(
        "svg",
        symbol_definitions(),
        *(_backdrop(rows, view, present, shown=view is views[0]) for view in views),
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


def coordinates(rows: Sequence[Row], view: View, present: Row | None = None) -> list[tuple[float, float]]:
    """Return the position of every row in per cent of the plot, from the left and from the top."""
    x, y = _scales(rows, view, present)
    return [(x.share(view.across(row)), y.share(view.up(row), flip=True)) for row in rows]


def views_data(rows: Sequence[Row], views: Sequence[View], present: Row | None = None) -> dict[str, object]:
    """Return the data with which the page's script changes the view."""
    return {
        view.name: {
            "x": [across for across, _ in coordinates(rows, view, present)],
            "y": [up for _, up in coordinates(rows, view, present)],
            "titles": [view.across_title, view.up_title],
        }
        for view in views
    }


def _backdrop(rows: Sequence[Row], view: View, present: Row | None, *, shown: bool) -> Safe:
    """Return grid, limit, front and the user's run of one view."""
    x, y = _scales(rows, view, present)
    return tag(
        "g",
        grid(x, y),
        None if view.limit is None else _limit_line(view.limit, x),
        _front_lines(rows, view, x, y),
        None if present is None else _own_cross(present, view, x, y),
        class_="view" if shown else "view away",
        data_view=view.name,
    )


def _scales(rows: Sequence[Row], view: View, present: Row | None) -> tuple[Scale, Scale]:
    across = [view.across(row) for row in rows] + ([] if view.limit is None else [view.limit])
    up = [view.up(row) for row in rows]
    if present is not None:
        across, up = _near(across, view.across(present)), _near(up, view.up(present))
    return scale_of(across), scale_of(up)


def _near(values: list[float], present: float) -> list[float]:
    """Return values including the user's, unless it is too far away to plot the others."""
    low, high = min(values), max(values)
    reach = (high - low) or 0.1 * abs(high)
    return [*values, present] if low - reach <= present <= high + reach else values


def _controls(
    columns: Mapping[str, Sequence[Value]], chosen: str | None, groups: Sequence[Value], views: Sequence[View]
) -> Safe:
    """Return the legend, and the choice of axes, colours and symbols."""
    against = None
    if len(views) > 1:
        named = [tag("option", view.name) for view in views]
        against = tag("label", tag("span", "throughput against"), tag("select", *named, id="view"))
    options = [tag("option", axis, selected=axis == chosen) for axis in columns]
    select = tag("label", tag("span", "colour and symbol by"), tag("select", *options, id="colour"), id="colouring")
    items = [tag("li", key_of(i), f" {chosen} {value}") for i, value in enumerate(groups)]
    return joined(
        [
            tag("div", against, select if columns else None, class_="fields", id="colour-form", hidden=True),
            tag("ul", *items, class_="legend", id="groups"),
        ]
    )


def _limit_line(limit: float, x: Scale) -> Safe:
    at = x.percent(limit)
    return tag(
        "g",
        tag("line", x1=at, x2=at, y1="0", y2="100%"),
        tag("text", f"limit {limit:.1f}", x=at, y="0", dx="4", dy="-6", text_anchor="end"),
        class_="limit-line",
        aria_hidden="true",
    )


def _front_lines(rows: Sequence[Row], view: View, x: Scale, y: Scale) -> Safe:
    places = pareto_front(rows, view)
    lines = []
    for here, following in itertools.pairwise(places):
        x1, x2 = (x.percent(view.across(rows[i])) for i in (here, following))
        y1, y2 = (y.percent(view.up(rows[i]), flip=True) for i in (here, following))
        lines.append(tag("line", x1=x1, x2=x2, y1=y1, y2=y1))
        lines.append(tag("line", x1=x2, x2=x2, y1=y1, y2=y2))
    return tag("g", *lines, class_="front", aria_hidden="true")


def _own_cross(present: Row, view: View, x: Scale, y: Scale) -> Safe:
    """Return a named cross at the position of the user's run, or at the border if that is off the scale."""
    across, up = view.across(present), view.up(present)
    inside = min(max(across, x.low), x.high), min(max(up, y.low), y.high)
    left, top = x.percent(inside[0]), y.percent(inside[1], flip=True)
    nested = tag("svg", tag("path", d="M-8,-8L8,8M-8,8L8,-8"), x=left, y=top, overflow="visible")
    high, far = inside[1] > (y.low + y.high) / 2, x.share(inside[0])
    anchor = "start" if far < 15 else "end" if far > 85 else "middle"
    name = "your run" if inside == (across, up) else f"your run, off the scale: {number(across)}, {number(up)}"
    text = tag("text", name, x=left, y=top, dy="24" if high else "-14", text_anchor=anchor)
    return tag("g", nested, text, class_="own-cross", aria_hidden="true")
