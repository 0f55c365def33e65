"""Layers and parameters of each pipeline stage.

Shapes: R runs of equal stages of P plans (``plan``); S stages of N strategies whose stages differ, one by one
(``rows``); B blocks as in ``simulator/layer``; K columns of stages with degrees of their own (``parameters``).
"""
