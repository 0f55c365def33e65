"""Search over flat strategies: walk the space in slices, score, keep the best.

Shapes: N candidates of one chunk; K of them that are kept; M keys that they are ranked by, most important first.
"""
