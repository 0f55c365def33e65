"""Time of a pipeline of stages for all microbatches, in closed form.

Shapes: R runs of equal stages in the order of the pipeline, each with the number of its stages (0 in padding); S
strategies with a pipeline of their own; N candidates that look theirs up; P plans, one for each way in which layers
stand on stages. Zero-bubble orders look at the first and the last stage of each run: 2R.
"""
