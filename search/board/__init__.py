"""Rows, leaderboards and their documents."""
