"""Layers and parameters of each pipeline stage.

Shapes: R runs of equal stages of P plans (``plan``); S stages of N strategies with different stages, one by one
(``rows``); B blocks as in ``simulator/layer``; K columns of stages with their own degrees (``parameters``).
"""
