"""Event-level simulation of strategy trees, whose layers and modules differ."""

from forerun.simulator.events.trees.tree_step import TreeResult, rough_step_s, simulate_tree

__all__ = ["TreeResult", "rough_step_s", "simulate_tree"]
