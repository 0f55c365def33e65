"""Clusters of groups of nodes that differ: one strategy on them, and the search for the best."""
