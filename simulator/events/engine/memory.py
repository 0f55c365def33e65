"""Memory of every device over time, and the task that takes it to its peak."""

import math
from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.events.engine.graph import Tag

Named = tuple[int, Tag, int]
"""Kind, tag and stream of a task: what its name is made of, which few tasks are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """Bytes of one device: ``held_bytes[i]`` from ``time_s[i]`` on."""

    time_s: NDArray[np.float64]
    held_bytes: NDArray[np.float64]


class MemoryMeter:
    """Counts what one device holds as it is told of it; of one instant, what is freed comes before what is allocated.

    ``peak_bytes`` of the first peak, at ``peak_s``, when ``peak_task`` allocated; -inf before anything is held.
    """

    __slots__ = ("_curve", "_held_bytes", "_now", "_now_s", "peak_bytes", "peak_s", "peak_task")

    def __init__(self, *, curve: bool = False) -> None:
        self._curve = (array("d"), array("d")) if curve else None
        self._held_bytes = 0.0
        self._now_s = 0.0
        self._now: list[tuple[bool, int, float, Named]] = []
        self.peak_bytes, self.peak_s = -math.inf, 0.0
        self.peak_task: Named | None = None

    def change(self, now_s: float, order: int, size_bytes: float, task: Named) -> None:
        """Allocate (negative: free); of one instant and kind, in their ``order``. Time never goes back."""
        if now_s != self._now_s:
            self.settle()
            self._now_s = now_s
        self._now.append((size_bytes > 0, order, size_bytes, task))

    def settle(self) -> None:
        """Count all changes of the last instant: there will be no more of them."""
        self._now.sort()
        for _, _, size_bytes, task in self._now:
            self._held_bytes += size_bytes
            if self._held_bytes > self.peak_bytes:
                self.peak_bytes, self.peak_s, self.peak_task = self._held_bytes, self._now_s, task
            if self._curve:
                self._curve[0].append(self._now_s)
                self._curve[1].append(self._held_bytes)
        self._now.clear()

    def curve(self) -> MemoryCurve:
        """Return all changes, where they were kept."""
        time_s, held_bytes = self._curve or (array("d"), array("d"))
        return MemoryCurve(time_s=np.frombuffer(time_s), held_bytes=np.frombuffer(held_bytes))
