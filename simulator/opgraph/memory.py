"""Peak memory of one device, and the largest batch that fits.

The parts are parameters and their states, activations kept for the backward pass (``footprint``), and the working set.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.opgraph.candidates import SplitCandidates, candidates_of
from forerun.simulator.opgraph.context import GRADIENT_BYTES, GraphContext
from forerun.simulator.opgraph.footprint import SplitFootprint, split_footprint
from forerun.simulator.opgraph.layers import Floats
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.split import Mode, Split


@dataclass(frozen=True, slots=True)
class Held:
    """Parameters and activations of the fullest device of every row.

    Parameters: ``dense_N``: changed by every step; ``tables_N``: sparse embedding tables, of which a step changes the
    looked-up rows; ``rows_N``: copied tables whose gradients are kept until replicas have exchanged them (other table
    gradients are consumed at once). Elements per sample: ``kept_N``: kept for the backward pass; ``beyond_N``: the
    excess over ``kept_N`` at its peak.
    """

    dense_N: Floats
    tables_N: Floats
    rows_N: Floats
    kept_N: Floats
    beyond_N: Floats

    def take(self, rows: NDArray[np.intp]) -> "Held":
        """Return some rows, in the order given."""
        return Held(*(getattr(self, field.name)[rows] for field in fields(self)))


def held_by(context: GraphContext, c: SplitCandidates) -> Held:
    """Return the memory of the fullest device of every row; none is a pipeline."""
    known: dict[tuple[object, ...], SplitFootprint] = {}
    rows: list[SplitFootprint] = []
    for split in c.splits:
        # A device's part depends on the replicas only where they share layers or tables.
        replicas = split.replicas if split.mixed or split.spread else 1
        key = (split.mode, split.parts, split.grid, replicas, split.mixed, split.spread)
        if key not in known:
            known[key] = split_footprint(context.model, replace(split, segments=1, replicas=replicas))
        rows.append(known[key])
    tables = [table for table in context.model.tables if context.sparse(table)]
    looked_up = np.sum([context.sent_elements(table, c.batch_N) for table in tables], axis=0) if tables else 0.0
    dense_of_tables, sparse = (
        np.array([float(sum(table.parameters for table in row.tables if context.sparse(table) == one)) for row in rows])
        for one in (False, True)
    )
    return Held(
        dense_N=np.array([row.dense for row in rows]) + dense_of_tables,
        tables_N=sparse,
        rows_N=np.where(~c.spread_N & (c.replicas_N > 1), looked_up, 0.0),
        kept_N=np.array([row.kept for row in rows]),
        beyond_N=np.array([row.beyond for row in rows]),
    )


RESERVE_BYTES = 0.8 * 2.0**30
"""Context of the driver and the libraries, and the largest workspace of a convolution library. The values are usual on
data-centre parts, as for transformers."""


def graph_memory(context: GraphContext, c: SplitCandidates, held: Held) -> dict[str, Floats]:
    """Return the bytes of every row on its fullest device, by part."""
    pipeline = c.is_mode(Mode.PIPELINE)
    # In a pipeline all segments are in flight before the first backward pass.
    batch = np.where(pipeline, c.batch_N / c.replicas_N, c.local_N)
    kept, beyond = held.kept_N, held.beyond_N
    if context.inference:
        parts = np.where(c.is_mode(Mode.SPATIAL), c.parts_N, 1.0)
        kept = float(np.prod(context.model.input)) / parts
        beyond = 2.0 * float(context.layers.per_operator("output_elements").max()) / parts
    gradients = (held.dense_N + held.rows_N) * GRADIENT_BYTES * (context.directions - 1.0)
    return {
        "parameters": (held.dense_N + held.tables_N) * context.parameter_bytes,
        "gradients": gradients,
        "optimizer": held.dense_N * context.state_bytes,
        "activations": batch * kept * context.width,
        "working": c.local_N * beyond * context.width,
        "buffers": bucket_bytes(context, gradients, np.where(pipeline, c.replicas_N, c.devices_N)),
        "reserve": np.full(len(c), RESERVE_BYTES),
    }


def peak_bytes(memory: Mapping[str, Floats]) -> Floats:
    """Return the bytes of all parts together."""
    return np.asarray(sum(memory.values()), dtype=np.float64)


def bucket_bytes(context: GraphContext, gradient_bytes: Floats, sharing: Floats) -> Floats:
    """Return the bytes of gradient buckets, where several devices share gradients."""
    return np.where(sharing > 1, np.minimum(context.profile.bucket_bytes * 2, gradient_bytes), 0.0)


_DOUBLINGS = 24
_COPIES = 2
"""Number of replicas, more than one so that gradient buckets count."""


def largest_batch(context: GraphContext) -> int:
    """Return the largest power of two of samples on each device that fits into its memory.

    Raises
    ------
    RequestError
        Not even one sample fits.
    """
    counts = [2**power for power in range(_DOUBLINGS)]
    c = candidates_of([Split(replicas=_COPIES)] * _DOUBLINGS, [_COPIES * count for count in counts])
    peak = peak_bytes(graph_memory(context, c, held_by(context, c)))
    fitting = int(np.count_nonzero(peak <= context.memory_limit_bytes))
    if not fitting:
        limit = context.memory_limit_bytes / 2**30
        raise RequestError(
            f"max/gpu needs room for one sample of {context.model.name} on a device, but that takes "
            f"{peak[0] / 2**30:.1f} of {limit:.1f} GiB; write the batch, so that splits may share it"
        )
    return int(counts[fitting - 1])
