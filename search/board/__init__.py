"""Rows, leaderboards and the documents that hold them."""
