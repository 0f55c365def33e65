"""Requests, and their settings: context, space and every default named.

Shapes: N candidates.
"""
