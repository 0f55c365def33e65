"""One self-contained page: predicted against measured per table of results, and the order within each group."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forerun.search.validate.metrics import SMALLEST_GROUP, time_error, timed_rows
from forerun.search.validate.predict import Predictions
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text

_HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>forerun validate</title>
<style>body{font:15px system-ui,sans-serif;margin:2rem auto;max-width:1100px;padding:0 1rem}</style></head><body>
<h1>Predicted against measured</h1>
"""


def write_plot(path: Path, predictions: Predictions, *, by: str | None = None) -> None:
    """Write the page; it opens without a network.

    Raises:
        RequestError: plotly is not installed, or the file cannot be written.
    """
    try:
        import plotly.io
    except ImportError:
        raise RequestError("--plot needs plotly, which is not installed; run `pip install plotly`") from None
    parts = _parts(predictions, by)
    figures = [accuracy_figure(predictions, parts), *order_figures(predictions, parts)]
    # The library goes in once, with the first figure.
    blocks = [
        plotly.io.to_html(figure, full_html=False, include_plotlyjs=number == 0)
        for number, figure in enumerate(figures)
    ]
    write_text(path, _HEAD + "\n".join(blocks) + "</body></html>\n")


def accuracy_figure(predictions: Predictions, parts: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return the log-log plot of predicted against measured step time, one colour per part."""
    traces: list[dict[str, Any]] = []
    lowest, highest = np.inf, 0.0
    for name, rows in parts.items():
        measured = [predictions.runs[row].step_time_s or 0.0 for row in rows]
        predicted = [float(predictions.step_time_s[row]) for row in rows]
        traces.append(_points(name, measured, predicted, [_label(predictions, row) for row in rows]))
        lowest, highest = min(lowest, *measured, *predicted), max(highest, *measured, *predicted)
    for factor, dash in ((1.0, "solid"), (1.25, "dot"), (0.8, "dot")):
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [lowest, highest],
                "y": [lowest * factor, highest * factor],
                "line": {"color": "#888", "width": 1, "dash": dash},
                "showlegend": False,
                "hoverinfo": "skip",
            }
        )
    axes = {"type": "log", "ticksuffix": " s"}
    return {
        "data": traces,
        "layout": {
            "title": {"text": "Step time: on the line is right, between the dots within 25 %"},
            "xaxis": {**axes, "title": {"text": "measured"}},
            "yaxis": {**axes, "title": {"text": "predicted"}},
            "height": 750,
        },
    }


def order_figures(predictions: Predictions, parts: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    """Return, per part, measured against predicted time over the group's best, group by group.

    A curve that rises from left to right is a group in the right order.
    """
    figures = []
    for name, rows in parts.items():
        groups: dict[str, list[int]] = {}
        for row in rows:
            if group := predictions.runs[row].group:
                groups.setdefault(group, []).append(row)
        traces = [
            _order_trace(predictions, group, members)
            for group, members in groups.items()
            if len(members) >= SMALLEST_GROUP
        ]
        if traces:
            layout = {
                "title": {"text": f"{name}: order within each group (rising curves are in order)"},
                "xaxis": {"title": {"text": "rank by predicted step time"}},
                "yaxis": {"type": "log", "title": {"text": "measured step time over the group's best"}},
                "height": 500,
                "legend": {"font": {"size": 9}},
            }
            figures.append({"data": traces, "layout": layout})
    return figures


def _order_trace(predictions: Predictions, group: str, rows: Sequence[int]) -> dict[str, Any]:
    ranked = sorted(rows, key=lambda row: float(predictions.step_time_s[row]))
    measured = [predictions.runs[row].step_time_s or 0.0 for row in ranked]
    trace = _points(
        group,
        list(range(1, len(ranked) + 1)),
        [value / min(measured) for value in measured],
        [_label(predictions, row) for row in ranked],
    )
    return trace | {"mode": "lines+markers"}


def _points(name: str, x: Sequence[float], y: Sequence[float], labels: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": list(x),
        "y": list(y),
        "text": list(labels),
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"size": 6, "opacity": 0.7},
    }


def _parts(predictions: Predictions, by: str | None) -> dict[str, list[int]]:
    """Return the timed rows of every part."""
    parts: dict[str, list[int]] = {}
    for row in timed_rows(predictions, range(len(predictions.runs))):
        run = predictions.runs[row]
        parts.setdefault(run.file if by is None else run.cells[by] or "(blank)", []).append(int(row))
    return dict(sorted(parts.items()))


def _label(predictions: Predictions, row: int) -> str:
    """Return what is shown when the mouse rests on a point."""
    run = predictions.runs[row]
    error = 100.0 * float(time_error(predictions, np.array([row]))[0])
    lines = (
        f"{run.run_id}: {run.cells['model']} on {run.cells['gpus']} x {run.cells['device']}",
        str(run.strategy),
        f"measured {run.step_time_s:.4g} s, predicted {float(predictions.step_time_s[row]):.4g} s ({error:+.1f} %)",
    )
    return "<br>".join(line.replace("&", "&amp;").replace("<", "&lt;") for line in lines)
