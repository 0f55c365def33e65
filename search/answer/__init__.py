"""Answers to a request: leaderboards, their notes, explanations, diagnoses and comparisons."""
