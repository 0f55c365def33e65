"""Strategies on groups of nodes that differ: prediction and search."""
