"""Operators of strategies, each shape once, slowest first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forerun.simulator import score
from forerun.simulator.costs.measured import MeasuredCosts, QueryRecorder
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.space import SplitSpace
from forerun.simulator.opgraph.table import AnySplit, table_of_splits
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy, StrategySpace, table_of

MOST_STRATEGIES = 200_000
"""Most legal strategies of a space whose operators are collected; more add few new shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledOperator:
    """One operator to measure: ``name`` and ``shape`` as arguments of cost rules, and the seconds of the fitted
    surface.
    """

    name: str
    shape: tuple[float, ...]
    fitted_s: float

    @property
    def key(self) -> str:
        """Key of the operator in files."""
        return f"{self.name} {' '.join(f'{value:g}' for value in self.shape)}"


def operators_of(
    context: Context | GraphContext, strategies: Sequence[Strategy | AnySplit] | StrategySpace | SplitSpace
) -> list[ProfiledOperator]:
    """Return every distinct operator of some strategies, or of all legal strategies of a space, slowest first.

    Attention over part of the sequence is omitted if no strategy splits it, though rules request it.

    Raises:
        RequestError: no strategy is legal.
    """
    recorder = QueryRecorder()
    bare = replace(context, correction=None) if isinstance(context, Context) else context
    device = replace(context.cluster.device, measured=recorder)
    recorded: Any = replace(bare, cluster=replace(context.cluster, measured=None, device=device))
    tables: list[Any]
    if isinstance(strategies, StrategySpace | SplitSpace):
        table, _ = strategies.table(0, strategies.size)
        tables = [table.take(slice(0, MOST_STRATEGIES))]
    elif isinstance(context, GraphContext):  # a mixture has a separate table
        tables = [table_of_splits(recorded, [one]) for one in strategies if not isinstance(one, Strategy)]
    else:
        tables = [table_of([one for one in strategies if isinstance(one, Strategy)])]
    if not any(map(len, tables)):
        raise RequestError("no strategy of the space is legal, so that there is no operator to measure")
    for table in tables:
        score(recorded, table)
    without_cp = isinstance(context, Context) and bool(np.all(tables[0].column("cp") == 1))
    operators = [
        ProfiledOperator(name=name, shape=shape, fitted_s=seconds)
        for name, shapes in recorder.asked.items()
        for shape, seconds in shapes.items()
        if not (without_cp and _partial(name, shape))
    ]
    return sorted(operators, key=lambda one: (-one.fitted_s, one.key))


def share_measured(context: Context | GraphContext, strategy: Strategy | AnySplit) -> tuple[float, int, int]:
    """Return the measured share of a strategy's operator time (each distinct operator once), and the numbers of
    measured and of all operators.
    """
    measured = context.cluster.device.measured
    operators = operators_of(context, [strategy])
    if not isinstance(measured, MeasuredCosts):
        return 0.0, 0, len(operators)
    known = [bool(measured.knows(one.name, np.array([one.shape]))[0]) for one in operators]
    total = sum(one.fitted_s for one in operators)
    return sum(o.fitted_s for o, k in zip(operators, known, strict=True) if k) / total, sum(known), len(known)


def _partial(name: str, shape: Iterable[float]) -> bool:
    """Whether an operator is attention over part of the keys, or more or fewer queries than keys."""
    if not name.startswith("attention"):
        return False
    *_, queries, keys, _, _ = shape
    return queries != keys
