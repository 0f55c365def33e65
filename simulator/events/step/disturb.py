"""Stragglers and jitter of replicas, from a seeded generator."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from forerun.spaces.errors import RequestError

MOST_JITTER = 10.0
"""Limit of deviation over mean: above it, few passes would determine the mean of the draws."""

_AT_ONCE = 256
"""Factors drawn at once: cheap per draw, and small enough to store for thousands of devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """Differences of devices.

    ``jitter``: standard deviation over mean of the duration of every pass (log-normal, mean kept); ``slow``: factor on
    the passes of single devices (``replica * pp + stage``), for example 1.2 for a hot one. ``every_replica``: simulate
    each replica even where all are equal.

    Raises:
        RequestError: the jitter is negative or above ``MOST_JITTER``, or a factor is not positive and finite.
    """

    seed: int = 0
    jitter: float = 0.0
    slow: Mapping[int, float] = field(default_factory=dict)
    every_replica: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.jitter <= MOST_JITTER:
            raise RequestError(f"jitter must be at least 0 and at most {MOST_JITTER:g}, but got {self.jitter}")
        for device, factor in self.slow.items():
            if not 0 < factor < math.inf:
                raise RequestError(f"a slow device's factor must be more than 0, but got {factor} for device {device}")


class Draws:
    """Factors on the passes of one device, from the device's own generator: draws do not depend on their order."""

    def __init__(self, disturbance: Disturbance, device: int) -> None:
        self._slow = disturbance.slow.get(device, 1.0)
        self._jitter = disturbance.jitter
        self._generator = np.random.default_rng((disturbance.seed, device))
        self._drawn: list[float] = []

    def factor(self) -> float:
        """Return the factor on the next pass."""
        if not self._jitter:
            return self._slow
        if not self._drawn:
            variance = math.log1p(self._jitter**2)
            normal = self._generator.normal(-variance / 2, math.sqrt(variance), size=_AT_ONCE)
            self._drawn = np.exp(normal)[::-1].tolist()
        return self._drawn.pop() * self._slow


def draws_of(disturbance: Disturbance, devices: int) -> list[Draws]:
    """Return the factors of every device of a step.

    Raises:
        RequestError: a slow device is not among them.
    """
    for device in disturbance.slow:
        if not 0 <= device < devices:
            raise RequestError(f"slow device {device} is not in the graph; use 0 to {devices - 1}")
    return [Draws(disturbance, device) for device in range(devices)]


def replicas_needed(disturbance: Disturbance | None, most: int) -> int:
    """Return the number of replicas to simulate: one where all are equal, otherwise all ``most``."""
    if disturbance is None:
        return 1
    return most if disturbance.every_replica or disturbance.jitter or disturbance.slow else 1
