"""Costs of data-parallel replicas per step: gradient reduction, optimizer, sharded states.

Shapes: R runs of equal stages; D strategies with distinct replica costs; S pipelines; N candidates, which refer to
both.
"""
