"""Time of a pipeline of stages for all microbatches, in closed form.

Shapes: R runs of equal stages in pipeline order, each with its number of stages (0 in padding); S strategies with
distinct pipelines; N candidates that refer to them; P plans, one for each assignment of layers to stages. Zero-bubble
orders use the first and the last stage of each run: 2R.
"""
