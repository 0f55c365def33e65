"""Stragglers and jitter: what makes replicas unequal, from a seeded generator."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from forerun.simulator.events.graph import TaskGraph
from forerun.simulator.events.kinds import SEND
from forerun.spaces.errors import RequestError

MOST_JITTER = 10.0
"""Deviation over mean up to which drawn passes still have the mean that they should: beyond, a few would carry it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """How much devices differ. ``jitter``: standard deviation over mean of the duration of every pass (log-normal, mean
    kept); ``slow``: factor on the passes of single devices (``replica * pp + stage``), such as 1.2 for a hot one.
    ``apart``: every replica is simulated even where all are equal.

    Raises:
        RequestError: the jitter is negative or above ``MOST_JITTER``, or a factor is not above zero and finite.
    """

    seed: int = 0
    jitter: float = 0.0
    slow: Mapping[int, float] = field(default_factory=dict)
    apart: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.jitter <= MOST_JITTER:
            raise RequestError(f"jitter must be at least 0 and at most {MOST_JITTER:g}, but got {self.jitter}")
        for device, factor in self.slow.items():
            if not 0 < factor < math.inf:
                raise RequestError(f"a slow device's factor must be more than 0, but got {factor} for device {device}")


def disturb(graph: TaskGraph, disturbance: Disturbance) -> None:
    """Change the durations of a compiled graph's passes; tasks are drawn for in the order of their numbers.

    Raises:
        RequestError: a slow device is not in the graph.
    """
    devices = max(graph.stream_device, default=-1) + 1
    for device in disturbance.slow:
        if not 0 <= device < devices:
            raise RequestError(f"slow device {device} is not in the graph; use 0 to {devices - 1}")
    generator = np.random.default_rng(disturbance.seed)
    variance = math.log1p(disturbance.jitter**2)
    factors = np.exp(generator.normal(-variance / 2, math.sqrt(variance), size=len(graph))).tolist()
    for task, kind in enumerate(graph.kind):
        if kind < SEND:
            device = graph.stream_device[graph.stream[task]]
            graph.duration_s[task] *= factors[task] * disturbance.slow.get(device, 1.0)


def replicas_needed(disturbance: Disturbance | None, most: int) -> int:
    """Return how many replicas must be simulated: one where all are equal, else all ``most`` of them."""
    if disturbance is None:
        return 1
    return most if disturbance.apart or disturbance.jitter or disturbance.slow else 1
