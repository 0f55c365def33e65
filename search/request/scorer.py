"""What a search calls: who scores candidates, and who is told how far it is."""

from collections.abc import Callable

from forerun.simulator.score_table import ScoreTable
from forerun.spaces.strategies import Context, StrategyTable

Scorer = Callable[[Context, StrategyTable], ScoreTable]
"""Returns the cost of N legal candidates, as ``forerun.simulator.score`` does."""
Progress = Callable[[int, int], None]
"""Called with (candidates enumerated, legal candidates among them) after each chunk."""
