"""The order of candidates and rows: objectives, the price of a failed start, preferences, variants and launchability.

Searches bound by this order and leaderboards show it, so that it is below both.
"""
