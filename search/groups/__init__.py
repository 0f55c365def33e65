"""Clusters of groups of nodes that differ: one strategy on them, and the search for the best."""

from forerun.search.groups.searching import search_groups
from forerun.search.groups.simulate import simulate_groups

__all__ = ["search_groups", "simulate_groups"]
