"""Objectives: functions from scores to ranking keys, lower is better.

An objective returns one or several arrays of shape N, most important first; candidates that tie in all of them rank by
their canonical index. Seconds include the OOM risk and preferences of practice, within the prediction error. Money
enters only through devices times seconds, so that no order depends on a price.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forerun.search.order.worth import worth_s
from forerun.simulator.score_table import Floats, ScoreTable
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.strategies import StrategyTable

if TYPE_CHECKING:
    from forerun.simulator.opgraph.table import SplitTable

Table: TypeAlias = "StrategyTable | SplitTable"

Keys = tuple[Floats, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One meaning of "best".

    ``keys`` maps the scores of N candidates to ranking keys of shape N; with ``front`` keys have no order, and all
    Pareto-optimal candidates are kept. Seconds in keys are those of ``worth``. ``plain`` maps predicted step times to
    the first key without these terms, and lower bounds to lower bounds if the key is monotone. ``across`` maps a row
    (plain data) to its key among rows of other workloads, whose step times are not comparable; a front uses its first
    objective.
    """

    name: str
    title: str
    keys: Callable[[Any, ScoreTable, Table], Keys]
    across: Callable[[Mapping[str, Any]], tuple[float, ...]]
    front: bool = False
    plain: Callable[[Floats, Table], Floats] | None = None

    def title_in(self, unit: str) -> str:
        """Return the title for a kind of model whose work is counted in ``unit``."""
        return self.title.format(unit=unit)

    def order(self, context: Any, scores: ScoreTable, table: Table) -> NDArray[np.intp]:
        """Return the positions of N candidates in rank order, feasible ones first."""
        return np.lexsort((*reversed(self.keys(context, scores, table)), ~scores.fits))

    def __reduce__(self) -> tuple[Callable[[str], "Objective"], tuple[str]]:
        """Pickle by name, since its functions cannot be pickled."""
        return objective_named, (self.name,)


def _seconds(step_s: Floats, table: Table) -> Floats:
    """Seconds per step: a step always consumes the same tokens."""
    return step_s


def _device_seconds(step_s: Floats, table: Table) -> Floats:
    """Device-seconds per step, to which the cost of a token is proportional at any price per device."""
    seconds: Floats = step_s * table.column("gpus")
    return seconds


def _throughput(context: Any, scores: ScoreTable, table: Table) -> Keys:
    return (worth_s(context, scores, table),)


def _cost(context: Any, scores: ScoreTable, table: Table) -> Keys:
    step_s = worth_s(context, scores, table)
    return (_device_seconds(step_s, table), step_s)


def _gpus(context: Any, scores: ScoreTable, table: Table) -> Keys:
    return (table.column("gpus").astype(np.float64), worth_s(context, scores, table))


def _headroom(context: Any, scores: ScoreTable, table: Table) -> Keys:
    return (scores.peak_memory_bytes, worth_s(context, scores, table))


def _price(row: Mapping[str, Any]) -> tuple[float, ...]:
    """USD per token if both have a price; rows without a price come last, by GPU-seconds per token."""
    usd = row.get("cost_usd_per_million_tokens", row.get("cost_usd_per_million_samples"))
    return (1.0, row["gpus"] / rate_of(row)) if usd is None else (0.0, usd)


def rate_of(row: Mapping[str, Any]) -> float:
    """Tokens or samples per second."""
    return float(row["tokens_per_s"] if "tokens_per_s" in row else row["samples_per_s"])


OBJECTIVES: Mapping[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective(
            name="throughput",
            title="most {unit}s per second",
            keys=_throughput,
            across=lambda row: (-rate_of(row),),
            plain=_seconds,
        ),
        Objective(name="cost", title="least cost per {unit}", keys=_cost, across=_price, plain=_device_seconds),
        Objective(
            name="gpus",
            title="fewest GPUs that fit, then fastest",
            keys=_gpus,
            across=lambda row: (row["gpus"], -rate_of(row)),
        ),
        Objective(
            name="headroom",
            title="most free memory on the fullest GPU",
            keys=_headroom,
            across=lambda row: (row["peak_memory_gib"] - row["memory_limit_gib"], -rate_of(row)),
        ),
    )
}
"""All objectives by name. "Fastest within USD per hour" is ``throughput`` under a budget in USD."""


def objective_named(name: str) -> Objective:
    """Return an objective; several names with commas between them mean their Pareto front.

    Raises
    ------
    RequestError
        No objective has this name, or a front has one twice.
    """
    names = [part.strip() for part in name.split(",")]
    for part in names:
        if part not in OBJECTIVES:
            raise unknown("objective", part, OBJECTIVES)
    if len(names) == 1:
        return OBJECTIVES[names[0]]
    if len(set(names)) < len(names):
        raise RequestError(f"a front has every objective once, but got {name}")
    parts = [OBJECTIVES[part] for part in names]

    def keys(context: Any, scores: ScoreTable, table: Table) -> Keys:
        return tuple(part.keys(context, scores, table)[0] for part in parts)

    title = f"Pareto front of {', '.join(names[:-1])} and {names[-1]}"
    return Objective(name=",".join(names), title=title, keys=keys, across=parts[0].across, front=True)
