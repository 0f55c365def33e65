"""Requests, and their settings: context, space and named defaults.

Shapes: N candidates.
"""
