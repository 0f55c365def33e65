"""Explanation of a strategy's cost, and effects of single changes."""
