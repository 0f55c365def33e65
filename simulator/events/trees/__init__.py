"""Strategy trees on the event level: costs of single layers and stages, put together into one step."""

from forerun.simulator.events.trees.borders import activation_layout, borders_between, moved
from forerun.simulator.events.trees.costs import tree_costs
from forerun.simulator.events.trees.simulate import TreeResult, simulate_tree

__all__ = ["TreeResult", "activation_layout", "borders_between", "moved", "simulate_tree", "tree_costs"]
