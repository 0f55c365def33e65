"""Strategy trees: nested configurations of computation, memory and schedule, beyond flat strategies."""

from forerun.spaces.trees.convert import flat_of, tree_of
from forerun.spaces.trees.laws import TreeStrategies, legal_tree
from forerun.spaces.trees.names import model_layers
from forerun.spaces.trees.resolve import Stage, resolve_tree
from forerun.spaces.trees.values import Computation, Node, Timing, TreeError
from forerun.spaces.trees.write import tree_yaml

__all__ = [
    "Computation",
    "Node",
    "Stage",
    "Timing",
    "TreeError",
    "TreeStrategies",
    "flat_of",
    "legal_tree",
    "model_layers",
    "resolve_tree",
    "tree_of",
    "tree_yaml",
]
