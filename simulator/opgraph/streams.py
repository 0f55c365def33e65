"""Memory traffic of operators without matrix products: number of passes over their tensors."""

from collections.abc import Mapping
from dataclasses import dataclass

from forerun.spaces.opgraph import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Reads and writes of every element of the inputs and of the output, forward and backward."""

    input_forward: float
    output_forward: float
    input_backward: float
    output_backward: float


PASSES: Mapping[Kind, Passes] = {
    # Statistics read once, normalising reads again and writes; backward reads both tensors for the sums, and again.
    Kind.BATCH_NORM: Passes(input_forward=2, output_forward=1, input_backward=3, output_backward=2),
    Kind.LAYER_NORM: Passes(input_forward=2, output_forward=1, input_backward=3, output_backward=2),
    Kind.ACTIVATION: Passes(input_forward=1, output_forward=1, input_backward=1, output_backward=2),
    # Gradients are passed on unchanged; where branches join they are summed.
    Kind.ADD: Passes(input_forward=1, output_forward=1, input_backward=0, output_backward=2),
    Kind.MULTIPLY: Passes(input_forward=1, output_forward=1, input_backward=2, output_backward=2),
    Kind.POOL: Passes(input_forward=1, output_forward=1, input_backward=1, output_backward=1),
    Kind.CONCAT: Passes(input_forward=1, output_forward=1, input_backward=1, output_backward=1),
    # The mask takes one byte per element.
    Kind.DROPOUT: Passes(input_forward=1, output_forward=1.25, input_backward=1, output_backward=1.25),
    Kind.SOFTMAX: Passes(input_forward=2, output_forward=1, input_backward=1, output_backward=2),
    Kind.UPSAMPLE: Passes(input_forward=1, output_forward=1, input_backward=1, output_backward=1),
    Kind.COPY: Passes(input_forward=1, output_forward=1, input_backward=1, output_backward=1),
    Kind.VIEW: Passes(input_forward=0, output_forward=0, input_backward=0, output_backward=0),
    Kind.LOSS: Passes(input_forward=3, output_forward=0, input_backward=2, output_backward=0),
    # The input is the looked-up rows; backward scatters them with their momentum.
    Kind.EMBEDDING: Passes(input_forward=0, output_forward=1, input_backward=0, output_backward=1),
}

FUSABLE = frozenset({Kind.ACTIVATION, Kind.DROPOUT})
"""Operators that a fusing framework computes inside the preceding one."""

ROWS_FORWARD, ROWS_BACKWARD = 1.0, 3.0
"""Passes over the looked-up rows of a table: gather; gradient, old and new row."""
