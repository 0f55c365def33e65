"""Searches for strategies. Each returns a ``Found`` (``board/found.py``), from which ``answer`` makes leaderboards."""
