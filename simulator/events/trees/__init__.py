"""Strategy trees, event by event: layers and modules that differ, on the devices of one step."""

from forerun.simulator.events.trees.tree_step import TreeResult, rough_step_s, simulate_tree

__all__ = ["TreeResult", "rough_step_s", "simulate_tree"]
