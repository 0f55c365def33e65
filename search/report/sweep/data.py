"""The rows of all searches of a sweep as columns, which are compact and fast to sort and filter."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forerun.search.board.sweeps import STATUSES, SweepFolder, SweptSearch
from forerun.search.order.objectives import objective_named, rate_of
from forerun.search.request.scorer import OnProgress
from forerun.spaces.errors import RequestError
from forerun.spaces.fields import finite
from forerun.spaces.units import format_count

Plain = Mapping[str, Any]
MOST_ROWS = 100_000
"""Most rows on the page: all first rows, then all second rows, and so on."""
MOST_TOLD = 2_000
"""Most searches for which the page explains the first row, a kilobyte each."""
FIGURES = 4
"""Digits of a number on the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure of every row: ``better`` is ``more`` or ``less``; ``value`` is None if unknown."""

    key: str
    title: str
    meaning: str
    better: str
    value: Callable[[Plain], float | None]


@dataclass(slots=True, kw_only=True)
class SweepData:
    """Data of the page: search (``number`` from 1), rank and text of every row, and columns of numbers.

    ``asked`` distinguishes searches (name -> value of every search); ``told`` has explanation and notes of the first
    searches.
    """

    searches: int
    ended: dict[str, int]
    unfinished: int
    rows: int
    measures: tuple[Measure, ...]
    asked: dict[str, list[str]]
    columns: dict[str, list[Any]]
    parts: dict[str, dict[str, Any]]
    told: dict[int, dict[str, Any]]
    nothing: list[tuple[int, str, str]] = field(default_factory=list)


def sweep_data(sweep: SweepFolder, on_progress: OnProgress | None = None) -> SweepData:
    """Return the columns of a sweep, its rows in rank order. ``on_progress`` is called with the share of finished work.

    Raises
    ------
    RequestError
        A record is damaged, or nothing was found.
    """
    ended: dict[int, SweptSearch] = {}
    for search in sweep.searches():
        ended[search.number] = search
        if on_progress is not None:
            on_progress("reading", len(ended), len(sweep.pieces), "")
    try:
        return _data(sweep, [ended[number] for number in sorted(ended)])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise RequestError(f"{sweep.folder} has a record that no search leaves behind: {what}") from None


def _data(sweep: SweepFolder, ended: Sequence[SweptSearch]) -> SweepData:
    successful = [search for search in ended if search.record.get("rows")]
    if not successful:
        raise RequestError(f"no search of {sweep.folder} has found anything: {_counts(ended)}")
    kept = _kept([len(search.record["rows"]) for search in successful])
    lines = [
        (search, row) for search, count in zip(successful, kept, strict=True) for row in search.record["rows"][:count]
    ]
    order = objective_named(sweep.objective).across
    lines.sort(key=lambda line: (order(line[1]), line[0].number))
    rows = [row for _, row in lines]
    measures = tuple(measure for measure in _measures(rows) if any(measure.value(row) is not None for row in rows))
    columns: dict[str, list[Any]] = {
        "search": [search.number for search, _ in lines],
        "rank": [int(row["rank"]) for row in rows],
        "strategy": [str(row["strategy"]) for row in rows],
        "marks": ["; ".join(map(str, row["marks"])) for row in rows],
        "limit": [_short(row["memory_limit_gib"]) for row in rows],
    }
    columns |= {measure.key: [_short(measure.value(row)) for row in rows] for measure in measures}
    return SweepData(
        searches=len(sweep.pieces),
        ended=_counts(ended),
        unfinished=len(sweep.pieces) - len(ended),
        rows=sum(len(search.record["rows"]) for search in successful),
        measures=measures,
        asked=_asked([piece["request"] for piece in sweep.pieces]),
        columns=columns,
        parts={"step": _parts(rows, "breakdown_s"), "memory": _parts(rows, "memory_gib")},
        told={
            search.number: {"why": str(search.record["why"]), "notes": list(map(str, search.record["notes"]))}
            for search in successful[:MOST_TOLD]
        },
        nothing=[
            (search.number, str(search.record["status"]), str(search.record.get("message", "")).split("\n")[0])
            for search in ended
            if not search.record.get("rows")
        ],
    )


def _kept(counts: Sequence[int]) -> list[int]:
    """Return the number of rows of each search on the page, ``MOST_ROWS`` in all.

    >>> _kept([3, 1]) == [3, 1]
    True
    """
    most = max(counts)
    while most > 1 and sum(min(count, most) for count in counts) > MOST_ROWS:
        most -= 1
    return [min(count, most) if place < MOST_ROWS else 0 for place, count in enumerate(counts)]


def _counts(ended: Sequence[SweptSearch]) -> dict[str, int]:
    counts = {status: sum(search.record["status"] == status for search in ended) for status in STATUSES}
    return {status: count for status, count in counts.items() if count}


def _measures(rows: Sequence[Plain]) -> tuple[Measure, ...]:
    """Return all figures; trainings with goodput have figures with failures and checkpoints."""
    unit = "token" if all("tokens_per_s" in row for row in rows) else "sample"
    short = {"token": "tok", "sample": "smp"}[unit]
    lost = any(row.get("goodput") for row in rows)
    of_all = "the whole training, failures and checkpoints included" if lost else "the whole training"
    return (
        Measure(key="gpus", title="GPUs", meaning="GPUs in use", better="less", value=lambda row: row["gpus"]),
        Measure(key="rate", title=f"{short}/s", meaning=f"{unit}s per second", better="more", value=rate_of),
        Measure(
            key="rate_gpu",
            title=f"{short}/s/GPU",
            meaning=f"{unit}s per second and GPU",
            better="more",
            value=lambda row: rate_of(row) / row["gpus"],
        ),
        _measure("mfu", "MFU %", "model FLOPs over the dense peak", "more", lambda row: 100 * row["mfu"]),
        _measure("step", "step (s)", "seconds per step", "less", lambda row: row["step_time_s"]),
        _measure("memory", "GiB", "peak memory of the fullest GPU", "less", lambda row: row["peak_memory_gib"]),
        _measure("risk", "OOM %", "risk of running out of memory", "less", lambda row: 100 * row.get("oom_risk", 0.0)),
        _measure("usd_unit", f"USD/M{short}", f"USD per million {unit}s", "less", _usd_per_million),
        _measure("days", "days", f"days of {of_all}", "less", lambda row: _whole(row, "train_days")),
        _measure("usd", "USD", f"USD for {of_all}", "less", lambda row: _whole(row, "train_cost_usd")),
        _measure("hours", "GPU-hours", f"GPU-hours of {of_all}", "less", _gpu_hours),
        _measure("mwh", "MWh", f"MWh that the GPUs take for {of_all}", "less", lambda row: _whole(row, "train_mwh")),
    )


def _measure(key: str, title: str, meaning: str, better: str, value: Callable[[Plain], float | None]) -> Measure:
    return Measure(key=key, title=title, meaning=meaning, better=better, value=value)


def _whole(row: Plain, name: str) -> float | None:
    """Return a figure of the whole training, including interruptions if the request counts them."""
    figure: float | None = (row.get("goodput") or {}).get(name, row.get(name))
    return figure


def _gpu_hours(row: Plain) -> float | None:
    days = _whole(row, "train_days")
    return None if days is None else 24 * days * row["gpus"]


def _usd_per_million(row: Plain) -> float | None:
    usd: float | None = row.get("cost_usd_per_million_tokens", row.get("cost_usd_per_million_samples"))
    return usd


def _asked(requests: Sequence[Plain]) -> dict[str, list[str]]:
    """Return the distinguishing inputs of searches as texts; common inputs occur once."""
    readers: dict[str, Callable[[Plain], str]] = {
        "model": lambda request: str(request["model"]),
        "cluster": lambda request: str(request["cluster"]),
        "framework": lambda request: str(request.get("framework") or "default"),
        "workload": _workload,
        "limits": _limits,
    }
    values = {name: [read(request) for request in requests] for name, read in readers.items()}
    return {name: texts for name, texts in values.items() if name in ("model", "cluster") or len(set(texts)) > 1}


def _workload(request: Plain) -> str:
    parts = [f"batch {request['global_batch']}"]
    parts += [f"sequence {request['seq_len']}"] if request.get("seq_len") else []
    parts += [str(request["precision"])] if request.get("precision") else []
    parts += [f"{format_count(float(request['tokens']))} tokens"] if request.get("tokens") else []
    parts += [f"imbalance {request['moe_imbalance']}"] if request.get("moe_imbalance") else []
    return ", ".join(parts)


def _limits(request: Plain) -> str:
    """Return the limits of a budget other than its numbers of GPUs."""
    names = {
        "usd_per_hour": "USD/h",
        "usd_per_gpu_hour": "USD/GPU-h",
        "train_within_s": "s at most",
        "train_usd": "USD at most",
        "oom_risk": "OOM risk",
        "goodput": "goodput",
    }
    parts = [f"{request[name]} {unit}".strip() for name, unit in names.items() if request.get(name) is not None]
    return ", ".join(parts) or "none"


def _parts(rows: Sequence[Plain], name: str) -> dict[str, Any]:
    """Return the parts of the step or memory of every row: names once, then values in the same order."""
    names = list(dict.fromkeys(part for row in rows for part in row[name]))
    return {"names": names, "rows": [[_short(row[name].get(part, 0.0), 3) for part in names] for row in rows]}


def _short(value: float | None, digits: int = FIGURES) -> float | int | None:
    """Return a number with the digits of the page."""
    if value is None or not math.isfinite(finite(value)):
        return None
    short = float(f"{float(value):.{digits}g}")
    return int(short) if short == int(short) else short
