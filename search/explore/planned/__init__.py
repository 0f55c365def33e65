"""Plans of pipelines whose stages differ in numbers of devices and degrees, by dynamic programming.

Shapes: K cuts, or K ways to fill a stage of one cut.
"""
