"""Answers for operator graphs alone: limits of families of splits, gains of changes, trees."""
