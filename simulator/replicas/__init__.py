"""Costs of data-parallel replicas per step: gradient reduction, optimizer, sharded states.

Shapes: R runs of equal stages; D strategies that replicas can tell apart; S pipelines; N candidates that look both up.
"""
