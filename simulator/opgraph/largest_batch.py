"""Largest number of samples on a device of a data-parallel run."""

import numpy as np

from forerun.simulator.opgraph.candidates import candidates_of
from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.held import held_by
from forerun.simulator.opgraph.memory import graph_memory
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.split import Split

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
    peak = graph_memory(context, c, held_by(context, c)).peak_bytes
    fitting = int(np.count_nonzero(peak <= context.memory_limit_bytes))
    if not fitting:
        limit = context.memory_limit_bytes / 2**30
        raise RequestError(
            f"max/gpu needs room for one sample of {context.model.name} on a device, but that takes "
            f"{peak[0] / 2**30:.1f} of {limit:.1f} GiB; write the batch, so that splits may share it"
        )
    return int(counts[fitting - 1])
