"""Seconds to load samples onto devices during the preceding step."""

import numpy as np

from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.layers import Floats


def own_input_s(context: GraphContext, samples: Floats | float) -> Floats:
    """Return the seconds to load and decode samples from the host for one device; 0 where the rate is unknown."""
    counts = np.asarray(samples, dtype=np.float64)
    rate = context.cluster.device.host_bytes_per_s
    elements = float(np.prod(context.model.input))
    return counts * elements * context.width / rate if rate else np.zeros_like(counts)


def stored_input_s(context: GraphContext, samples: Floats | float) -> Floats:
    """Return the seconds to read samples from storage for one node, in stored form; 0 where storage never limits."""
    counts, model = np.asarray(samples, dtype=np.float64), context.model
    if context.profile.storage_bytes_per_s is None:
        return np.zeros_like(counts)
    stored = model.stored_bytes if model.stored_bytes is not None else 4.0 * float(np.prod(model.input))
    return counts * stored / context.profile.storage_bytes_per_s
