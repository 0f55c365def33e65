"""Exposure of replica traffic that runs in buckets during the pass that computes or needs its parameters.

A pass has as many equal segments as its parameters have buckets. Bucket j of a reduction follows segment j of the pass;
bucket j of a gather precedes it.
"""

import numpy as np

from forerun.simulator.replicas.buffers import MOST_SEGMENTS
from forerun.simulator.score_table import Floats


def buckets_of_pass(buckets: Floats, share: Floats) -> Floats:
    """Return the segments of a pass over a ``share`` (0 to 1) of a rank's parameters in ``buckets``, in the mean."""
    return np.clip(buckets * share, 1.0, MOST_SEGMENTS)


def hiding_s(pass_s: Floats, buckets: Floats) -> Floats:
    """Return the seconds of traffic that a pass can hide: all of its segments except the first (gathers: the last)."""
    return pass_s * (1 - 1 / buckets)


def exposed_s(traffic_s: Floats, pass_s: Floats, buckets: Floats) -> Floats:
    """Return the seconds of traffic in equal buckets outside the pass.

    ``pass_s``: seconds of traffic that the pass hides in all of its segments.
    """
    # Traffic T of n buckets ends at max_j (j p / n + (n - j + 1) T / n) after a pass of p starts. The term is linear in
    # j, so j = 1 (traffic without a pause) or j = n (the last bucket alone) decides.
    return np.maximum(traffic_s / buckets, traffic_s - hiding_s(pass_s, buckets))


def hidden_s(traffic_s: Floats, pass_s: Floats, buckets: Floats) -> Floats:
    """Return the remaining seconds of the traffic, which the pass hides."""
    return traffic_s - exposed_s(traffic_s, pass_s, buckets)
