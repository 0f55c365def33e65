"""One self-contained page: predicted against measured per table of results, and the order within each group."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from forerun.search.figures.markup import Safe, tag
from forerun.search.figures.plane import Scale, grid, key_of, scale_of, symbol_definitions, symbol_of
from forerun.search.figures.still_page import section, still_page
from forerun.search.measured.validate.metrics import SMALLEST_GROUP, time_error, timed_rows
from forerun.search.measured.validate.predict import Predictions
from forerun.spaces.files import write_text

NEAR = 1.25
"""Factor from the measured time at which dotted lines are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run in a figure: its coordinates, and its tooltip."""

    x: float
    y: float
    label: str


def write_plot(path: Path, predictions: Predictions, *, by: str | None = None) -> None:
    """Write the page; it opens without a network.

    Args:
        path: the file to write.
        predictions: measured runs and their predictions.
        by: column whose values are the parts (None: the table of a run).

    Raises:
        RequestError: the file cannot be written.
    """
    write_text(path, plot_page(predictions, by=by))


def plot_page(predictions: Predictions, *, by: str | None = None) -> str:
    """Return the page: one figure of all times, then one of the order in every part with groups."""
    parts = _parts(predictions, by)
    content = [
        tag("svg", symbol_definitions(), width="0", height="0", aria_hidden="true"),
        section("times", "Step time", *accuracy_figure(accuracy_points(predictions, parts))),
    ]
    for part, rows in parts.items():
        if groups := order_points(predictions, rows):
            content.append(section(f"order-{len(content)}", f"Order in {part}", *order_figure(groups)))
    runs = sum(map(len, parts.values()))
    subtitle = f"{runs:,} measured runs. Rest the mouse on a symbol for its run."
    return still_page(title="Predicted against measured", subtitle=subtitle, content=content)


def accuracy_points(predictions: Predictions, parts: Mapping[str, Sequence[int]]) -> dict[str, list[Point]]:
    """Return the runs of every part at their measured and predicted step time in seconds."""
    return {
        part: [
            Point(x=measured_s(predictions, row), y=float(predictions.step_time_s[row]), label=_label(predictions, row))
            for row in rows
        ]
        for part, rows in parts.items()
    }


def order_points(predictions: Predictions, rows: Sequence[int]) -> dict[str, list[Point]]:
    """Return the points of every large enough group: rank by predicted time (from 1), measured time over the group's
    best. A curve that rises from left to right is a group in the right order.
    """
    groups: dict[str, list[int]] = {}
    for row in rows:
        if group := predictions.runs[row].group:
            groups.setdefault(group, []).append(row)
    points = {}
    for group, members in groups.items():
        if len(members) >= SMALLEST_GROUP:
            ranked = sorted(members, key=lambda row: float(predictions.step_time_s[row]))
            best_s = min(measured_s(predictions, row) for row in ranked)
            points[group] = [
                Point(x=rank, y=measured_s(predictions, row) / best_s, label=_label(predictions, row))
                for rank, row in enumerate(ranked, start=1)
            ]
    return points


def accuracy_figure(parts: Mapping[str, Sequence[Point]]) -> list[Safe]:
    """Return the legend and the log-log plot of predicted against measured step time, a colour and shape per part."""
    values = [value for points in parts.values() for point in points for value in (point.x, point.y)]
    scale = scale_of(values, log=True)
    lines = [_diagonal(scale, factor) for factor in (1.0, NEAR, 1 / NEAR)]
    symbols = [_symbol(point, kind, scale, scale) for kind, points in enumerate(parts.values()) for point in points]
    keys = [tag("li", key_of(kind), f" {part} ({len(points):,})") for kind, (part, points) in enumerate(parts.items())]
    return [
        tag("p", "On the line is right; between the dotted lines within 25 %.", class_="hint"),
        tag("ul", *keys, class_="legend"),
        *_figure("predicted (s)", "measured (s)", grid(scale, scale), *lines, *symbols),
    ]


def order_figure(groups: Mapping[str, Sequence[Point]]) -> list[Safe]:
    """Return the figure of one part: a curve per group."""
    points = [point for group in groups.values() for point in group]
    x = scale_of([point.x for point in points])
    y = scale_of([point.y for point in points], log=True)
    drawn = []
    for kind, (group, members) in enumerate(groups.items()):
        lines = [
            tag(
                "line",
                x1=x.percent(here.x),
                y1=y.percent(here.y, flip=True),
                x2=x.percent(following.x),
                y2=y.percent(following.y, flip=True),
            )
            for here, following in itertools.pairwise(members)
        ]
        symbols = [_symbol(point, kind, x, y) for point in members]
        drawn.append(tag("g", tag("title", group), *lines, *symbols, class_="curve"))
    return [
        tag("p", f"{len(groups)} groups; curves that rise are in order.", class_="hint"),
        *_figure("measured step time over the group's best", "rank by predicted step time", grid(x, y), *drawn),
    ]


def measured_s(predictions: Predictions, row: int) -> float:
    """Return the measured step time of a row in seconds."""
    return predictions.runs[row].step_time_s or 0.0


def _figure(up_title: str, across_title: str, *children: Safe) -> list[Safe]:
    label = f"{up_title} against {across_title}"
    svg = tag("svg", *children, class_="figure", role="img", aria_label=label)
    return [
        tag("p", up_title, class_="y-title"),
        tag("div", svg, class_="plot"),
        tag("p", across_title, class_="x-title"),
    ]


def _diagonal(scale: Scale, factor: float) -> Safe:
    """Return the line of predictions that are ``factor`` times the measured time."""
    low, high = max(scale.low, scale.low / factor), min(scale.high, scale.high / factor)
    return tag(
        "line",
        x1=scale.percent(low),
        y1=scale.percent(low * factor, flip=True),
        x2=scale.percent(high),
        y2=scale.percent(high * factor, flip=True),
        class_="right" if factor == 1.0 else "near",
    )


def _symbol(point: Point, kind: int, x: Scale, y: Scale) -> Safe:
    title = tag("title", point.label)
    return tag("use", title, **symbol_of(kind), x=x.percent(point.x), y=y.percent(point.y, flip=True))


def _parts(predictions: Predictions, by: str | None) -> dict[str, list[int]]:
    """Return the timed rows of every part."""
    parts: dict[str, list[int]] = {}
    for row in timed_rows(predictions, range(len(predictions.runs))):
        run = predictions.runs[row]
        parts.setdefault(run.file if by is None else run.cells[by] or "(blank)", []).append(int(row))
    return dict(sorted(parts.items()))


def _label(predictions: Predictions, row: int) -> str:
    """Return the tooltip of a point."""
    run = predictions.runs[row]
    error = 100.0 * float(time_error(predictions, np.array([row]))[0])
    return (
        f"{run.run_id}: {run.cells['model']} on {run.cells['gpus']} x {run.cells['device']}\n{run.strategy}\n"
        f"measured {run.step_time_s:.4g} s, predicted {float(predictions.step_time_s[row]):.4g} s ({error:+.1f} %)"
    )
