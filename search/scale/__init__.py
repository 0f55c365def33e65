"""Throughput against workers of data-parallel training."""
