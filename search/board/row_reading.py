"""Reader of leaderboard rows; it checks every field, since users may edit the file."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from forerun.search.board.evidence import NearestRuns
from forerun.search.board.rows import Row, Variant
from forerun.simulator import MEMORY_PARTS, TIME_PARTS
from forerun.simulator.memory.risk import oom_risk
from forerun.simulator.opgraph import PHASES
from forerun.simulator.opgraph.bottleneck import Bottleneck, SplitFacts
from forerun.spaces.opgraph.split import parse_split
from forerun.spaces.strategies import parse_strategy

Value = TypeVar("Value")
GRAPH_MEMORY = tuple(part for part in MEMORY_PARTS if part != "logits")
"""Memory parts of operator graphs."""


def finite(value: Any) -> float:
    """Return a finite number.

    Raises:
        ValueError: the number is not finite.
    """
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a number must be finite, but got {number}")
    return number


def optional(read: Callable[[Any], Value], value: Any) -> Value | None:
    """Return ``read`` of a value; None for None."""
    return None if value is None else read(value)


def row_from_json(data: Mapping[str, Any]) -> Row[Any]:
    """Return the row of a ``Row.to_json`` document of this or an earlier version.

    Raises:
        RequestError: the strategy cannot be read. KeyError, TypeError, ValueError, OverflowError: a field is missing or
        invalid.
    """

    def price(name: str) -> float | None:
        return optional(finite, data[name])

    graph = "samples_per_s" in data
    unit = "sample" if graph else "token"
    read: Callable[[str], Any] = parse_split if graph else parse_strategy
    return Row(
        rank=optional(int, data["rank"]),
        strategy=read(str(data["strategy"])),
        gpus=int(data["gpus"]),
        step_time_s=above_zero(data, "step_time_s"),
        throughput=above_zero(data, f"{unit}s_per_s"),
        throughput_per_gpu=above_zero(data, f"{unit}s_per_s_per_gpu"),
        mfu=finite(data["mfu"]),
        fits=bool(data["fits"]),
        peak_memory_gib=above_zero(data, "peak_memory_gib"),
        memory_limit_gib=above_zero(data, "memory_limit_gib"),
        oom_risk=_oom_risk(data),
        allocated_memory_gib=finite(data["allocated_memory_gib"]),
        peak_stage=int(data["peak_stage"]),
        breakdown_s=_parts(data["breakdown_s"], (TIME_PARTS, PHASES) if graph else (TIME_PARTS,)),
        memory_gib=_parts(data["memory_gib"], (GRAPH_MEMORY,) if graph else (MEMORY_PARTS,)),
        cost_usd_per_hour=price("cost_usd_per_hour"),
        usd_per_million=price(f"cost_usd_per_million_{unit}s"),
        train_days=price("train_days"),
        train_cost_usd=price("train_cost_usd"),
        marks=tuple(map(str, data["marks"])),
        variants=tuple(_variant(one) for one in data.get("variants") or ()),
        interval_level=_level(data),
        step_time_low_s=optional(finite, data.get("step_time_low_s")),
        step_time_high_s=optional(finite, data.get("step_time_high_s")),
        evidence=optional(_evidence, data.get("evidence")),
        same_as_rank=optional(int, data.get("same_as_rank")),
        peak_memory_low_gib=optional(finite, data.get("peak_memory_low_gib")),
        peak_memory_high_gib=optional(finite, data.get("peak_memory_high_gib")),
        unit=str(data.get("unit", "image")) if graph else "token",
        facts=_facts(data) if graph else None,
        precision=optional(str, data.get("precision")),
        watts_per_gpu=optional(finite, data.get("watts_per_gpu")),
    )


def _parts(data: Mapping[str, Any], known: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the parts of a step or of a memory, whose names are one of the ``known`` sets.

    Raises:
        KeyError, TypeError, ValueError: a part is missing or not a number.
    """
    names = next((names for names in known if set(names) <= set(data)), known[0])
    return {part: max(0.0, finite(data[part])) for part in names}


def _facts(data: Mapping[str, Any]) -> SplitFacts:
    held_up = Bottleneck(name=str(data.get("bottleneck", "")), seconds=None, words="", inference=False)
    return SplitFacts(
        global_batch=int(data["global_batch"]),
        family=str(data["family"]),
        batch_norm=str(data["batch_norm"]),
        hidden_s=finite(data.get("hidden_gradient_s", 0.0)),
        bottlenecks=(held_up,) if held_up.name else (),
    )


def _variant(data: Mapping[str, Any]) -> Variant:
    return Variant(
        strategy=parse_strategy(str(data["strategy"])),
        step_time_s=above_zero(data, "step_time_s"),
        peak_memory_gib=above_zero(data, "peak_memory_gib"),
        oom_risk=finite(data["oom_risk"]),
    )


def _evidence(data: Mapping[str, Any]) -> NearestRuns:
    return NearestRuns(level=str(data["shares"]), runs=int(data["runs"]), text=str(data["text"]))


def _level(data: Mapping[str, Any]) -> float | None:
    """Return the level of a row's intervals; before 22 November 2026 only calibrated rows had intervals, of 90 %."""
    return finite(data.get("interval_level", 0.9)) if data.get("step_time_low_s") is not None else None


def _oom_risk(data: Mapping[str, Any]) -> float:
    """Return the risk of a row; leaderboards from before 21 November 2026 have neither risks nor limits on them."""
    if "oom_risk" in data:
        return finite(data["oom_risk"])
    return oom_risk(above_zero(data, "peak_memory_gib") / above_zero(data, "memory_limit_gib"))


def above_zero(data: Mapping[str, Any], name: str) -> float:
    """Return a finite number above 0.

    Raises:
        ValueError: the number is not finite or not above 0.
    """
    value = float(data[name])
    if not 0 < value < 1e300:
        raise ValueError(f"{name} must be a finite number above 0, but got {value}")
    return value
