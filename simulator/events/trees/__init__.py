"""Strategy trees on the event level: costs of single layers and stages, put together into one step."""

from forerun.simulator.events.trees.borders import activation_layout, borders_between, moved
from forerun.simulator.events.trees.costs import tree_costs
from forerun.simulator.events.trees.inside import collectives_inside
from forerun.simulator.events.trees.simulate import TreeResult, rough_step_s, simulate_tree, stage_peaks, tree_scores

__all__ = [
    "TreeResult",
    "activation_layout",
    "borders_between",
    "collectives_inside",
    "moved",
    "rough_step_s",
    "simulate_tree",
    "stage_peaks",
    "tree_costs",
    "tree_scores",
]
