"""Peak memory and OOM risk of every candidate.

Shapes: R runs of equal stages (or one row, where every column is a stage); S pipelines; D strategies with distinct
replica costs; N candidates, which refer to both; B blocks as in ``simulator/layer``.
"""
