"""Waits of kernels for the host that issues them one by one, by one rule for both levels.

A kernel starts when the preceding kernel has ended and the host has issued it: ``end_i = max(end_(i-1), issued_i) +
kernel_i``. The recurrence equals a sum and a running maximum, ``end_i = K_i + max_(j <= i)(issued_j - K_(j-1))`` with
``K`` the running sum of kernels, so a shorter kernel or an earlier issue never ends a step later.
"""

import numpy as np

from forerun.simulator.opgraph.layers import Floats


def paced(forward_NL: Floats, backward_NL: Floats, launched_NL: Floats, host_N: Floats) -> tuple[Floats, Floats]:
    """Return forward and backward seconds of every operator with its waits for the host, for N passes over L operators.

    ``launched_NL``: 1 for operators that the host issues, in both directions; other operators wait for nothing.
    ``host_N``: seconds in which the host issues an entire pass at an even pace, calls between operators included.
    """
    kernels = np.concatenate([forward_NL, backward_NL[:, ::-1]], axis=1)
    took = in_order(kernels, np.concatenate([launched_NL, launched_NL[:, ::-1]], axis=1), host_N)
    count = forward_NL.shape[1]
    return took[:, :count], took[:, : count - 1 : -1]


def in_order(kernels_NL: Floats, launched_NL: Floats, host_N: Floats) -> Floats:
    """Return the seconds as in ``paced``, of operators that run once, in the order of the columns."""
    before = np.cumsum(launched_NL, axis=1) - launched_NL
    each = host_N / np.maximum(launched_NL.sum(axis=1), 1.0)
    done = np.cumsum(kernels_NL, axis=1)
    lead = np.where(launched_NL > 0, before * each[:, None] - (done - kernels_NL), 0.0)
    # The host issues the first kernel at the start of the pass: no lead is less than zero.
    waited = np.maximum.accumulate(np.maximum(lead, 0.0), axis=1)
    return np.asarray(kernels_NL + np.diff(waited, axis=1, prepend=0.0))
