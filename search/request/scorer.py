"""What a search calls: who scores candidates, and who is told how far it is."""

from collections.abc import Callable
from typing import Any

from forerun.simulator.score_table import ScoreTable

Scorer = Callable[[Any, Any], ScoreTable]
"""Returns the cost of N legal candidates, as ``forerun.simulator.score`` does; called with a context and a table, both
of one kind of model (``kinds``)."""
Progress = Callable[[int, int], None]
"""Called with (candidates enumerated, legal candidates among them) after each chunk."""
