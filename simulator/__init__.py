"""Costs of one strategy of a training: time, memory and timeline."""

from forerun.simulator.score_table import MEMORY_PARTS, TIME_PARTS, ScoreTable
from forerun.simulator.scoring import score, table_for

__all__ = ["MEMORY_PARTS", "TIME_PARTS", "ScoreTable", "score", "table_for"]
