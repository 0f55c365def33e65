"""The leaderboard of a finished search, read back from the folder it left behind."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from forerun.search.baseline import Baseline, Measured
from forerun.search.board.changes import ScoredChange
from forerun.search.board.folder import BOARD, read_leaderboard
from forerun.search.board.leaderboard import Leaderboard, SpaceCounts
from forerun.search.board.rows import Row
from forerun.search.board.variants import Variant
from forerun.search.explain.explain import why
from forerun.search.request.objectives import objective_named
from forerun.simulator import MEMORY_PARTS, TIME_PARTS
from forerun.simulator.memory.risk import oom_risk
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import parse_strategy

Value = TypeVar("Value")


def read_run(folder: Path) -> Leaderboard:
    """Return the leaderboard in a folder that ``forerun search --out`` wrote, by this version or an earlier one of its
    schema: fields it does not know are passed over, those that came later are filled in (docs/formats.md).

    Raises:
        RequestError: the folder is no such one, or its leaderboard is damaged or of another schema.
    """
    data = read_leaderboard(folder)
    try:
        return _board(data)
    except (RequestError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        told = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise RequestError(f"{folder / BOARD} is not a leaderboard that forerun wrote: {told}") from None


def _board(data: Mapping[str, Any]) -> Leaderboard:
    request = dict(data["request"])
    space = data["space"]
    rows = tuple(map(_row, data["leaderboard"]))
    if any(row.rank is None for row in rows):
        raise ValueError("a row has no rank")
    workers = str(request.pop("workers", "in this process"))
    for name in ("model_name", "cluster_name", "framework", "precision", "objective"):
        request[name] = str(request[name])
    for name in ("global_batch", "seq_len"):
        request[name] = int(request[name])
    objective_named(request["objective"])
    # The first leaderboards did not say which numbers of GPUs were searched.
    request["gpu_counts"] = [int(count) for count in request.get("gpu_counts", sorted({row.gpus for row in rows}))]
    if not request["gpu_counts"]:
        raise ValueError("gpu_counts is empty")
    return Leaderboard(
        request=request,
        space=SpaceCounts(
            size=int(space["size"]),
            legal=int(space["legal"]),
            feasible=int(space["feasible"]),
            rejected={str(reason): int(count) for reason, count in space["rejected"].items()},
        ),
        rows=rows,
        why=why(rows),
        defaults=tuple(map(str, request.pop("defaults"))),
        remarks=tuple(map(str, request.pop("notes"))),
        elapsed_s=float(data["elapsed_s"]),
        versions={str(name): str(version) for name, version in data["versions"].items()},
        workers=workers,
        baseline=None if data.get("baseline") is None else _baseline(data["baseline"]),
    )


def _baseline(data: Mapping[str, Any]) -> Baseline:
    changes = tuple(
        ScoredChange(
            axis=str(change["axis"]),
            words=str(change["change"]),
            row=_row(change["row"]),
            added_s=float(change["added_s"]),
        )
        for change in data["changes"]
    )
    return Baseline(
        source=str(data["source"]),
        format=_optional(str, data["format"]),
        framework=str(data["framework"]),
        row=_row(data["row"]),
        faster_rows=int(data["faster_rows"]),
        text=str(data["text"]),
        changes=changes,
        notes=tuple(map(str, data["notes"])),
        other={str(key): str(value) for key, value in data["other"].items()},
        unknown={str(key): str(value) for key, value in data["unknown"].items()},
        measured=_optional(_measured, data["measured"]),
    )


def _measured(data: Mapping[str, Any]) -> Measured:
    seconds = {name: _optional(float, data[name]) for name in ("low_s", "high_s", "ratio", "best_step_time_s")}
    return Measured(
        source=str(data["source"]),
        step_time_s=_above_zero(data, "step_time_s"),
        counted=_optional(int, data["counted"]),
        **seconds,
    )


def _optional(read: Callable[[Any], Value], value: Any) -> Value | None:
    return None if value is None else read(value)


def _row(data: Mapping[str, Any]) -> Row:
    def price(name: str) -> float | None:
        return _optional(float, data[name])

    return Row(
        rank=_optional(int, data["rank"]),
        strategy=parse_strategy(str(data["strategy"])),
        gpus=int(data["gpus"]),
        step_time_s=_above_zero(data, "step_time_s"),
        tokens_per_s=_above_zero(data, "tokens_per_s"),
        tokens_per_s_per_gpu=_above_zero(data, "tokens_per_s_per_gpu"),
        mfu=float(data["mfu"]),
        fits=bool(data["fits"]),
        peak_memory_gib=_above_zero(data, "peak_memory_gib"),
        memory_limit_gib=_above_zero(data, "memory_limit_gib"),
        oom_risk=_oom_risk(data),
        allocated_memory_gib=float(data["allocated_memory_gib"]),
        peak_stage=int(data["peak_stage"]),
        breakdown_s={part: max(0.0, float(data["breakdown_s"][part])) for part in TIME_PARTS},
        memory_gib={part: max(0.0, float(data["memory_gib"][part])) for part in MEMORY_PARTS},
        cost_usd_per_hour=price("cost_usd_per_hour"),
        cost_usd_per_million_tokens=price("cost_usd_per_million_tokens"),
        train_days=price("train_days"),
        train_cost_usd=price("train_cost_usd"),
        marks=tuple(map(str, data["marks"])),
        variants=tuple(map(Variant.from_json, data.get("variants") or ())),
        interval_level=_level(data),
        step_time_low_s=_optional(float, data.get("step_time_low_s")),
        step_time_high_s=_optional(float, data.get("step_time_high_s")),
        same_as_rank=_optional(int, data.get("same_as_rank")),
        peak_memory_low_gib=_optional(float, data.get("peak_memory_low_gib")),
        peak_memory_high_gib=_optional(float, data.get("peak_memory_high_gib")),
    )


def _level(data: Mapping[str, Any]) -> float | None:
    """Return the level of a row's intervals; before 22 November 2026 only calibrated rows had some, of 90 %."""
    return float(data.get("interval_level", 0.9)) if data.get("step_time_low_s") is not None else None


def _oom_risk(data: Mapping[str, Any]) -> float:
    """Return the risk of a row; leaderboards from before 21 November 2026 say none, and bounded none."""
    if "oom_risk" in data:
        return float(data["oom_risk"])
    return oom_risk(_above_zero(data, "peak_memory_gib") / _above_zero(data, "memory_limit_gib"))


def _above_zero(data: Mapping[str, Any], name: str) -> float:
    value = float(data[name])
    if not 0 < value < 1e300:
        raise ValueError(f"{name} must be a finite number above 0, but got {value}")
    return value
