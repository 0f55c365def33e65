"""Trace files of several profilers, read without trust in them."""
