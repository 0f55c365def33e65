"""Memory of every device over time, and the task that allocates its peak."""

import math
from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.events.engine.graph import Tag

Named = tuple[int, Tag, int]
"""Kind, tag and stream of a task, the parts of its name, which is built only on request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """Bytes of one device: ``held_bytes[i]`` from ``time_s[i]`` on."""

    time_s: NDArray[np.float64]
    held_bytes: NDArray[np.float64]


class MemoryMeter:
    """Allocated bytes of one device as changes arrive; at one instant, frees count before allocations.

    ``peak_bytes``, ``peak_s`` and ``peak_task``: bytes, time and allocating task of the first peak; -inf before any
    allocation.
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
        """Allocate (negative: free); changes of one instant and kind count in their ``order``. Time never decreases."""
        if now_s != self._now_s:
            self.settle()
            self._now_s = now_s
        self._now.append((size_bytes > 0, order, size_bytes, task))

    def settle(self) -> None:
        """Count all changes of the last instant, which is complete."""
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
        """Return all changes, if they were kept."""
        time_s, held_bytes = self._curve or (array("d"), array("d"))
        return MemoryCurve(time_s=np.frombuffer(time_s), held_bytes=np.frombuffer(held_bytes))
