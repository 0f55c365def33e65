"""The cost of candidates, whatever kind of model they are for."""

from typing import Any

from forerun.simulator.core.score import score as score_strategies
from forerun.simulator.opgraph.table import SplitTable, score_table
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.strategies import StrategyTable


def score(context: Any, table: StrategyTable | SplitTable) -> ScoreTable:
    """Score N legal candidates by closed forms; ``context`` is that of the table's kind of model.

    Raises:
        RequestError: as for ``score_table`` of splits.
    """
    return score_table(context, table) if isinstance(table, SplitTable) else score_strategies(context, table)
