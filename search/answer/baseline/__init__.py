"""Comparison of the user's current run with a leaderboard: reading (``present``) and prediction (``compare``)."""

from forerun.search.answer.baseline.compare import adopt, context_of, stand_beside
from forerun.search.answer.baseline.present import Present, read_present
from forerun.search.answer.baseline.splits import read_split, stand_split_beside
from forerun.search.board.requested import Baseline, MeasuredStep

__all__ = [
    "Baseline",
    "MeasuredStep",
    "Present",
    "adopt",
    "context_of",
    "read_present",
    "read_split",
    "stand_beside",
    "stand_split_beside",
]
