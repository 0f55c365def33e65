"""Callables of a search: the scorer of candidates and progress callbacks."""

from collections.abc import Callable
from typing import Any

from forerun.simulator.score_table import ScoreTable

Scorer = Callable[[Any, Any], ScoreTable]
"""Function that returns the cost of N legal candidates, as ``forerun.simulator.score`` does; called with a context and
a table, both of one kind of model (``kinds``)."""
OnProgress = Callable[[str, int, int, str], None]
"""Called with (task, amount done, total amount or 0, remark) as a task advances."""
Progress = Callable[[int, int], None]
"""Called with (candidates enumerated, legal candidates among them) after each chunk."""


def enumeration_progress(on_progress: OnProgress | None, task: str, size: int) -> Progress | None:
    """Return the callback that reports a search of ``size`` candidates as a task."""
    if on_progress is None:
        return None
    tell = on_progress
    return lambda enumerated, legal: tell(task, enumerated, size, f"{legal:,} scored")
