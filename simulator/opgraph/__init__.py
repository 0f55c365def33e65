"""Costs of training an operator graph for many splits at once, the counterpart of the transformer core.

Shapes, also as suffixes of names: N splits (the rows of a table); K distinct shapes of a device's computation; L
operators of the model in order, of which U are distinct; A spatial axes (3); B messages between replicas.
"""

from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.score import PHASES, score_splits

__all__ = ["PHASES", "GraphContext", "score_splits"]
