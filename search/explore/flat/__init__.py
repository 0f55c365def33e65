"""Search over flat strategies: enumeration in slices, scoring, selection.

Shapes: N candidates of one chunk; K kept candidates; M ranking keys, most important first.
"""
