"""Ways to look for strategies. Each returns what it found (``board/found.py``); ``answer`` makes leaderboards of it."""
