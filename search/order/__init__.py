"""The order of candidates and rows: objectives, the price of a failed start, preferences, variants and launchability.

Searches and leaderboards both import this package.
"""
