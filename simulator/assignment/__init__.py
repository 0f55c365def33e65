"""Layers with their settings on pipeline ranks and groups of devices, and the costs of one step.

Shapes: C virtual stages ("chunks") in model order; P pipeline ranks; B blocks as in ``simulator/layer``; K columns;
N pairs of stages.
"""
