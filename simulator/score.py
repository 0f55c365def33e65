"""The vectorised core: seconds and bytes of every candidate of a table."""

from forerun.simulator.score_table import ScoreTable
from forerun.spaces.strategies import Context, StrategyTable


def score(context: Context, table: StrategyTable) -> ScoreTable:
    """Return time and memory of every candidate."""
    raise NotImplementedError
