"""Metrics as tables: CSV and JSON lines, as exported by Weights & Biases and MLflow or written by scripts.

Step times come from a column by its name, else from times and numbers of steps.
"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from forerun.search.formats.logs.lines import number_of
from forerun.search.formats.logs.steps import LONGEST_S, Step, between

_STEP_TIME = re.compile(
    r"(?:step|iter(?:ation)?)[ _/-]*(?:time|timing|duration|seconds|ms)"
    r"|time[ _/]*per[ _/]*(?:step|iter)|end_to_end\(s\)|\(s/it(?:er)?\)"
)
_RATE = re.compile(r"(?:steps?|it|iter(?:ation)?s?|batches)[ _]*(?:per|/)[ _]*(?:s|sec|second)\)?$|(?:^|/)bps(?: |$)")
_MILLISECONDS = re.compile(r"(?:\b|_)ms\b|milli")
_PEAK = re.compile(r"(?:max|peak)\w*.*(?:mem|reserved|allocated)|(?:mem|memory).*(?:max|peak)|reserved mem")
_NUMBER_NAMES = (
    "_step",
    "step",
    "global_step",
    "trainer/global_step",
    "iteration",
    "train/global_step",
    "current_steps",
)
_CLOCK_NAMES = {
    "_timestamp": 1.0,
    "_runtime": 1.0,
    "relative time (process)": 1.0,
    "timestamp": 1e-3,
    "time_s": 1.0,
    "elapsed_time": 1.0,
}
"""Columns of timestamps, and their unit in seconds: MLflow counts milliseconds."""
_UNITS = {"gi": 2.0**30, "gb": 2.0**30, "mi": 2.0**20, "mb": 2.0**20, "bytes": 1.0}
_MLFLOW = re.compile(r"^(\d{12,14}) (\S+) (\d+)$")
Rows = Sequence[Mapping[str, Any]]


def rows_of(text: str) -> Rows | None:
    """Read a table; None if the text is not a table."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    if lines[0].lstrip().startswith("{"):
        try:
            rows = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            return None
        return [row for row in rows if isinstance(row, dict)]
    if all(_MLFLOW.match(line) for line in lines):
        cells = [line.split() for line in lines]
        return [{"timestamp": cell[0], "value": cell[1], "step": cell[2]} for cell in cells]
    names = lines[0].replace('"', "").split(",")
    same = len(lines) > 1 and lines[0].count(",") == lines[1].count(",") > 0
    if not same or re.search(r"[|=]", lines[0]) or not any(_known(name) for name in names):
        return None
    try:
        return list(csv.DictReader(io.StringIO(text), restkey=""))
    except csv.Error:
        return None


def _plain(name: str) -> str:
    """Return the name of a metric without the name of its run."""
    return name.rsplit(" - ", 1)[-1].strip().lower()


def _known(name: str) -> bool:
    plain = _plain(name)
    return bool(_STEP_TIME.search(plain) or _RATE.search(plain) or plain in (*_NUMBER_NAMES, *_CLOCK_NAMES))


def _time(value: Any) -> float | None:
    """Return a number, or a time like 5:13:22 in seconds."""
    parts = [number_of(part) for part in str(value).split(":")]
    numbers = [part for part in parts if part is not None]
    if len(parts) == 1 or len(numbers) < len(parts):
        return number_of(value)
    seconds = 0.0
    for number in numbers:
        seconds = 60 * seconds + number
    return seconds


def table_steps(rows: Rows, metric: str = "") -> list[Step]:
    """Read the step times of a table; ``metric``: name of the file, which in MLflow is the metric."""
    if metric and all(set(row) == {"timestamp", "value", "step"} for row in rows) and _STEP_TIME.search(metric.lower()):
        rows = [{metric: row["value"], "step": row["step"]} for row in rows]
    if all({"key", "value"} <= set(row) for row in rows):  # MLflow, one metric a row
        rows = [{str(row["key"]): row["value"], "step": row.get("step")} for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row if not name.endswith(("__MIN", "__MAX"))))
    number = next((name for name in names if _plain(name) in _NUMBER_NAMES), "")
    for pattern in (_STEP_TIME, _RATE):
        for name in names:
            if not pattern.search(_plain(name)):
                continue
            factor = 1e-3 if _MILLISECONDS.search(_plain(name)) else 1.0
            values = [(value, row) for row in rows if (value := number_of(row.get(name))) is not None and value > 0]
            seconds = [(1.0 / value if pattern is _RATE else value * factor, row) for value, row in values]
            steps = [Step(one, number=_integer(row.get(number))) for one, row in seconds if one < LONGEST_S]
            if steps:
                return steps
    clock = next((name for name in names if _plain(name) in _CLOCK_NAMES), None)
    if clock is None or not number:
        return []
    unit = _CLOCK_NAMES[_plain(clock)]
    stamps = [(_integer(row.get(number)), _time(row.get(clock))) for row in rows]
    return between([(one, when * unit) for one, when in stamps if one is not None and when is not None])


def _integer(value: Any) -> int | None:
    number = number_of(value)
    return None if number is None else int(number)


def table_peak(rows: Rows) -> float | None:
    """Return the largest peak of a table in bytes, if the name of its column has the unit."""
    peaks = []
    for row in rows:
        for name, cell in row.items():
            plain = _plain(name)
            value = number_of(cell)
            if value is None or not _PEAK.search(plain):
                continue
            unit = next((size for mark, size in _UNITS.items() if mark in plain), None)
            if unit is not None:
                peaks.append(value * unit)
    return max(peaks, default=None)
