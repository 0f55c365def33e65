"""Memory of every device over time, and the task that takes it to its peak."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.events.engine import Execution
from forerun.simulator.events.graph import TaskGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """Bytes of one device: ``held_bytes[i]`` from ``time_s[i]`` on, after what ``task[i]`` allocated or freed."""

    time_s: NDArray[np.float64]
    held_bytes: NDArray[np.float64]
    task: NDArray[np.int64]

    @property
    def peak(self) -> int:
        """Place of the (first) peak; -1 where nothing was ever held."""
        return int(np.argmax(self.held_bytes)) if len(self.held_bytes) else -1

    @property
    def peak_bytes(self) -> float:
        """Most bytes held at any time."""
        return float(self.held_bytes[self.peak]) if len(self.held_bytes) else 0.0


def memory_curves(graph: TaskGraph, run: Execution) -> tuple[MemoryCurve, ...]:
    """Return the curve of every device; of one instant, what is freed comes before what is allocated."""
    devices = max(graph.stream_device, default=-1) + 1
    if not graph.holds:
        empty = MemoryCurve(time_s=np.zeros(0), held_bytes=np.zeros(0), task=np.zeros(0, dtype=np.int64))
        return (empty,) * devices
    task, device, at_end, size = (np.array(column) for column in zip(*graph.holds, strict=True))
    start_s, end_s = np.array(run.start_s), np.array(run.end_s)
    time_s = np.where(at_end, end_s[task], start_s[task])
    order = np.lexsort((np.arange(len(task)), size > 0, time_s, device))
    bounds = np.searchsorted(device[order], np.arange(devices + 1))
    curves = []
    for number in range(devices):
        own = order[bounds[number] : bounds[number + 1]]
        curves.append(
            MemoryCurve(time_s=time_s[own], held_bytes=np.cumsum(size[own].astype(np.float64)), task=task[own])
        )
    return tuple(curves)
