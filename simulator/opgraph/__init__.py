"""What training an operator graph costs for many splits at once: the sibling of the transformer core."""

from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.score import PHASES, GraphScores, score_splits

__all__ = ["PHASES", "GraphContext", "GraphScores", "score_splits"]
