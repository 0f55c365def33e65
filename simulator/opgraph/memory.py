"""Peak memory of one device: parameters and their states, activations kept for the backward pass, working set."""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.opgraph.candidates import Candidates
from forerun.simulator.opgraph.context import GRADIENT_BYTES, GraphContext
from forerun.simulator.opgraph.held import Held
from forerun.simulator.opgraph.layers import Floats
from forerun.spaces.opgraph.split import Mode

RESERVE_BYTES = 0.8 * 2.0**30
"""Context of the driver and the libraries, and the largest workspace of a convolution library. The values are usual on
data-centre parts, as for transformers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphMemory:
    """Bytes on the fullest device, per row."""

    parameters_bytes: Floats
    gradients_bytes: Floats
    optimizer_bytes: Floats
    activations_bytes: Floats
    working_bytes: Floats
    buffers_bytes: Floats

    @property
    def peak_bytes(self) -> Floats:
        """Bytes of all parts together, including the reserve."""
        parts = (self.parameters_bytes, self.gradients_bytes, self.optimizer_bytes, self.activations_bytes)
        return np.asarray(sum(parts) + self.working_bytes + self.buffers_bytes + RESERVE_BYTES, dtype=np.float64)


def graph_memory(context: GraphContext, c: Candidates, held: Held) -> GraphMemory:
    """Return the memory of every row."""
    pipeline = c.is_mode(Mode.PIPELINE)
    # In a pipeline all segments are in flight before the first backward pass.
    batch = np.where(pipeline, c.batch_N / c.replicas_N, c.local_N)
    kept, beyond = held.kept_N, held.beyond_N
    if context.inference:
        parts = np.where(c.is_mode(Mode.SPATIAL), c.parts_N, 1.0)
        kept = float(np.prod(context.model.input)) / parts
        beyond = 2.0 * float(context.layers.per_operator("output_elements").max()) / parts
    gradients = (held.dense_N + held.rows_N) * GRADIENT_BYTES * (context.directions - 1.0)
    return GraphMemory(
        parameters_bytes=(held.dense_N + held.tables_N) * context.parameter_bytes,
        gradients_bytes=gradients,
        optimizer_bytes=held.dense_N * context.state_bytes,
        activations_bytes=batch * kept * context.width,
        working_bytes=c.local_N * beyond * context.width,
        buffers_bytes=bucket_bytes(context, gradients, np.where(pipeline, c.replicas_N, c.devices_N)),
    )


def bucket_bytes(context: GraphContext, gradient_bytes: Floats, sharing: Floats) -> Floats:
    """Return the bytes of gradient buckets, where several devices share gradients."""
    return np.where(sharing > 1, np.minimum(context.profile.bucket_bytes * 2, gradient_bytes), 0.0)
