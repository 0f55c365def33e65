"""A device that does not exist: every operator is really computed, and then waited for until its time has gone by.

So four processes on two cores get in each other's way no more than four machines would. The time of an operator is a
plain function of its name and shape (a start, and work over a rate), with the names that ``forerun profile`` uses. A
device is busy without a break for as long as operators follow each other: what one was late is made up by the next, and
only communication has to wait for everything before it.
"""

import math
import time
from collections.abc import Sequence

FLOPS_PER_S = 6e9
START_S = 0.4e-3
ELEMENT_S = 2e-9
PARAMETER_S = 10e-9
_BACKWARD = 2.5
"""Work of attention's backward pass over that of its forward pass."""
_SLACK_S = 1e-3
"""The device may be ahead of the process by this much before it is waited for."""
_PAUSE_S = 5e-3
"""After a pause of the process that is longer, the device begins anew."""


def nominal_s(name: str, shape: Sequence[float]) -> float:
    """Return the seconds that the emulated device takes for an operator."""
    kind, *words = name.split()
    if kind == "gemm":
        return START_S + 2 * math.prod(shape) / FLOPS_PER_S
    if kind == "attention":
        b, h, _, sq, sk, d, _ = shape
        work = 2 * b * h * sq * sk * d * (_BACKWARD if "backward" in words else 1.0)
        return START_S + work / FLOPS_PER_S
    if kind == "adam":
        return START_S + PARAMETER_S * shape[0]
    return START_S / 2 + ELEMENT_S * shape[0]


class Device:
    """One emulated device: ``run`` is called behind every operator, ``wait`` before everybody's attention is needed;
    ``busy_s``: all its operators so far."""

    def __init__(self) -> None:
        self._free_s = 0.0
        self.busy_s = 0.0

    def run(self, name: str, shape: Sequence[float]) -> None:
        """The operator was computed: keep the device busy for its time."""
        now = time.perf_counter()
        if now - self._free_s > _PAUSE_S:
            self._free_s = now
        took_s = nominal_s(name, shape)
        self._free_s += took_s
        self.busy_s += took_s
        if self._free_s - now > _SLACK_S:
            time.sleep(self._free_s - now - _SLACK_S / 2)

    def wait(self) -> None:
        """Wait until the device is done with everything."""
        left = self._free_s - time.perf_counter()
        if left > 0:
            time.sleep(left)

    def restart(self) -> None:
        """The device was idle up to now: it waited for communication."""
        self._free_s = max(self._free_s, time.perf_counter())
