"""The cost of candidates, whatever kind of model they are for."""

from collections.abc import Sequence
from typing import Any

from forerun.simulator.core.score import score as score_strategies
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.table import SplitTable, score_table, table_of_splits
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.strategies import StrategyTable, table_of


def score(context: Any, table: StrategyTable | SplitTable) -> ScoreTable:
    """Score N legal candidates by closed forms; ``context`` is that of the table's kind of model.

    Raises:
        RequestError: as for ``score_table`` of splits.
    """
    return score_table(context, table) if isinstance(table, SplitTable) else score_strategies(context, table)


def table_for(context: Any, strategies: Sequence[Any]) -> StrategyTable | SplitTable:
    """Return candidates as a table of the context's kind of model; a mixture stands in one of its own."""
    return table_of_splits(context, strategies) if isinstance(context, GraphContext) else table_of(strategies)
