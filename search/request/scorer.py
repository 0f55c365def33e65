"""What a search calls: who scores candidates, and who is told how far it is."""

from collections.abc import Callable
from typing import Any

from forerun.simulator.score_table import ScoreTable

Scorer = Callable[[Any, Any], ScoreTable]
"""Returns the cost of N legal candidates, as ``forerun.simulator.score`` does; called with a context and a table, both
of one kind of model (``kinds``)."""
OnProgress = Callable[[str, int, int, str], None]
"""Called with (what is done now, how much of it is done, of how much or 0, a few words beside) when that moves."""
Progress = Callable[[int, int], None]
"""Called with (candidates enumerated, legal candidates among them) after each chunk."""


def enumeration_progress(on_progress: OnProgress | None, task: str, size: int) -> Progress | None:
    """Return the progress of a search of ``size`` candidates that is told as a task."""
    if on_progress is None:
        return None
    tell = on_progress
    return lambda enumerated, legal: tell(task, enumerated, size, f"{legal:,} scored")
