"""Reader of leaderboard rows; it checks every field, since users may edit the file."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forerun.search.board.evidence import NearestRuns
from forerun.search.board.rows import PER_UNIT, Row, Variant
from forerun.simulator import MEMORY_PARTS, TIME_PARTS
from forerun.simulator.memory.risk import oom_risk
from forerun.simulator.opgraph import PHASES
from forerun.simulator.opgraph.bottleneck import Bottleneck, SplitFacts
from forerun.spaces.fields import fields_from, finite
from forerun.spaces.opgraph.split import parse_split
from forerun.spaces.strategies import parse_strategy

GRAPH_MEMORY = tuple(part for part in MEMORY_PARTS if part != "logits")
"""Memory parts of operator graphs."""
POSITIVE = ("step_time_s", "throughput", "throughput_per_gpu", "peak_memory_gib", "memory_limit_gib")
"""Fields that are above 0."""


def row_from_json(data: Mapping[str, Any]) -> Row[Any]:
    """Return the row of a ``Row.to_json`` document of this or an earlier version.

    Raises
    ------
    RequestError
        The strategy cannot be read.
    KeyError, TypeError, ValueError, OverflowError
        A field is missing or invalid.
    """
    graph = "samples_per_s" in data
    unit = "sample" if graph else "token"
    names = {field: name.format(unit) for field, name in PER_UNIT.items()}
    read: Callable[[str], Any] = parse_split if graph else parse_strategy
    return fields_from(
        Row,
        data,
        names=names,
        strategy=read(str(data["strategy"])),
        **{name: above_zero(data, names.get(name, name)) for name in POSITIVE},
        oom_risk=_oom_risk(data),
        breakdown_s=_parts(data["breakdown_s"], (TIME_PARTS, PHASES) if graph else (TIME_PARTS,)),
        memory_gib=_parts(data["memory_gib"], (GRAPH_MEMORY,) if graph else (MEMORY_PARTS,)),
        variants=tuple(_variant(one) for one in data.get("variants") or ()),
        interval_level=_level(data),
        evidence=None if data.get("evidence") is None else _evidence(data["evidence"]),
        goodput=None,
        tree="",
        unit=str(data.get("unit", "image")) if graph else "token",
        facts=_facts(data) if graph else None,
    )


def _parts(data: Mapping[str, Any], known: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the parts of a step or of a memory, whose names are one of the ``known`` sets."""
    names = next((names for names in known if set(names) <= set(data)), known[0])
    return {part: max(0.0, finite(data[part])) for part in names}


def _facts(data: Mapping[str, Any]) -> SplitFacts:
    worst = Bottleneck(name=str(data.get("bottleneck", "")), seconds=None, words="", inference=False)
    bottlenecks = (worst,) if worst.name else ()
    return fields_from(SplitFacts, data, names={"hidden_s": "hidden_gradient_s"}, bottlenecks=bottlenecks)


def _variant(data: Mapping[str, Any]) -> Variant:
    return fields_from(
        Variant,
        data,
        strategy=parse_strategy(str(data["strategy"])),
        step_time_s=above_zero(data, "step_time_s"),
        peak_memory_gib=above_zero(data, "peak_memory_gib"),
    )


def _evidence(data: Mapping[str, Any]) -> NearestRuns:
    return fields_from(NearestRuns, data, names={"level": "shares"}, figures={})


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

    Raises
    ------
    ValueError
        The number is not finite or not above 0.
    """
    value = float(data[name])
    if not 0 < value < 1e300:
        raise ValueError(f"{name} must be a finite number above 0, but got {value}")
    return value
