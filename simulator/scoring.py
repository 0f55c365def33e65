"""Scores of candidates of any kind of model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forerun.simulator.core.score import score as score_strategies
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.strategies import Context, StrategyTable, table_of

if TYPE_CHECKING:
    from forerun.simulator.opgraph.table import SplitTable


def score(context: Any, table: "StrategyTable | SplitTable") -> ScoreTable:
    """Score N legal candidates by closed forms; ``context``: of the table's kind of model.

    Raises:
        RequestError: as for ``score_table`` of splits.
    """
    if isinstance(table, StrategyTable):
        return score_strategies(context, table)
    from forerun.simulator.opgraph.table import score_table

    return score_table(context, table)


def table_for(context: Any, strategies: Sequence[Any]) -> "StrategyTable | SplitTable":
    """Return candidates as a table of the context's kind of model; a mixture needs a table of its own."""
    if isinstance(context, Context):
        return table_of(strategies)
    from forerun.simulator.opgraph.table import table_of_splits

    return table_of_splits(context, strategies)
