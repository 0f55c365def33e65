"""What a search calls: who scores candidates, and who is told how far it is."""

from collections.abc import Callable

from forerun.simulator.score_table import ScoreTable
from forerun.spaces.strategies import Context, StrategyTable

Scorer = Callable[[Context, StrategyTable], ScoreTable]
"""Returns the cost of N legal candidates, as ``forerun.simulator.score`` does."""
Told = Callable[[str, int, int, str], None]
"""Called with (what is done now, how much of it is done, of how much or 0, a few words beside) when that moves."""
Progress = Callable[[int, int], None]
"""Called with (candidates walked, legal candidates among them) after each chunk."""


def walk_told(told: Told | None, task: str, size: int) -> Progress | None:
    """Return the progress of a search of ``size`` candidates that is told as a task."""
    if told is None:
        return None
    tell = told
    return lambda walked, legal: tell(task, walked, size, f"{legal:,} scored")
