"""Axes in which the strategies of a leaderboard differ."""

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.search.board.rows import Row
from forerun.spaces.opgraph.split import Split
from forerun.spaces.strategies import NAMED, SPELLING, Strategy
from forerun.spaces.strategies.stage_choices import recompute_text

SHOWN = (
    "gpus",
    "pp",
    "tp",
    "dp",
    "cp",
    "ep",
    "etp",
    "mbs",
    "vpp",
    "zero",
    "shard",
    "sp",
    "recompute",
    "schedule",
    "split",
    "placement",
    "switches",
)
"""Axes in the order in which the page offers them."""

Value = int | str


def differing(rows: Sequence[Row[Any]]) -> dict[str, tuple[Value, ...]]:
    """Return, for every axis with more than one value, its value in each row."""
    if rows[0].facts is not None:
        return _of_splits(rows)
    strategies = [row.strategy for row in rows]
    columns = {axis: tuple(_value(strategy, axis) for strategy in strategies) for axis in SHOWN}
    return {axis: values for axis, values in columns.items() if len(set(values)) > 1}


def _of_splits(rows: Sequence[Row[Split]]) -> dict[str, tuple[Value, ...]]:
    splits = [row.strategy for row in rows]
    columns: dict[str, tuple[Value, ...]] = {
        "gpus": tuple(split.devices for split in splits),
        "family": tuple(split.family for split in splits),
        "data": tuple(split.replicas for split in splits),
        "parts": tuple(split.parts for split in splits),
        "segments": tuple(split.segments for split in splits),
    }
    return {axis: values for axis, values in columns.items() if len(set(values)) > 1}


def distinct(values: Sequence[Value]) -> list[Value]:
    """Return distinct values in ascending order, numbers before names."""
    return sorted(set(values), key=lambda value: (isinstance(value, str), value))


def first_of(columns: Mapping[str, Sequence[Value]], wanted: Sequence[str]) -> str | None:
    """Return the first wanted axis in which rows differ, else any axis in which they differ, else None."""
    return next((axis for axis in (*wanted, *columns) if axis in columns), None)


def _value(strategy: Strategy, axis: str) -> Value:
    if axis == "gpus":
        return strategy.devices
    if axis == "split" and strategy.layers_per_stage is not None:
        return "layers"
    if axis == "recompute" and strategy.recompute_entries is not None:
        return recompute_text(strategy.recompute_entries)
    value = getattr(strategy, axis)
    if strategy.second_tp is not None and axis in ("tp", "dp", "mbs"):
        return f"{value}/{getattr(strategy.half(True), axis)}"
    if axis in NAMED:
        return SPELLING[axis][int(value)]
    if axis == "shard":
        return strategy.shard or "all"
    if axis == "sp":
        return "yes" if value else "no"
    return int(value)
