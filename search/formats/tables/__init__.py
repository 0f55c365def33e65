"""Launchers as tables of keys."""
