"""Launchers, each a table of its keys."""
