"""What training a layer-by-layer model costs for many splits at once: the sibling of the transformer core."""

from forerun.simulator.opgraph.context import LayeredContext
from forerun.simulator.opgraph.score import PHASES, LayeredScores, score_splits

__all__ = ["PHASES", "LayeredContext", "LayeredScores", "score_splits"]
