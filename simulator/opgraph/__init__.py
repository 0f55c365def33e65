"""Costs of training an operator graph for many splits at once: the counterpart of the transformer core.

Shapes, also as endings of names: N splits, the rows of a table; K distinct shapes that a device computes; L operators
of the model in their order, of which U differ; A spatial axes (3); B messages that replicas exchange.
"""

from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.score import PHASES, GraphScores, score_splits

__all__ = ["PHASES", "GraphContext", "GraphScores", "score_splits"]
