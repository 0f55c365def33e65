"""Readers of untrusted trace files of several profilers."""
