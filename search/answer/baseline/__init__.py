"""The user's present run beside a leaderboard: ``present`` reads it, ``compare`` predicts it, ``value`` is what comes
of it."""

from forerun.search.answer.baseline.compare import adopt, context_of, stand_beside
from forerun.search.answer.baseline.present import Present, read_present
from forerun.search.answer.baseline.splits import read_split, stand_split_beside
from forerun.search.board.baseline import Baseline, MeasuredStep

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
