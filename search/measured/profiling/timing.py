"""Seconds of a function, measured: warm-up, repetitions, median and spread. Imports torch."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from forerun.search.measured.profiling.plan import FEWEST, LONGEST_S, WARM

_SHORT_S = 200e-6
"""Shortest interval between two clock readings; shorter functions run several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """``seconds``: median; ``spread``: half the distance of the quartiles over the median; ``count`` of readings."""

    seconds: float
    spread: float
    count: int


def timed(once: Callable[[], Any], device: str, repeat: int) -> Timed:
    """Measure a function ``repeat`` times; by device events on CUDA, by the clock elsewhere."""
    for _ in range(WARM):
        once()
    read = on_cuda if device.startswith("cuda") else by_clock
    first = read(once, 1)
    inner = 1 if first > _SHORT_S else max(1, min(100, int(_SHORT_S / max(first, 1e-7))))
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < repeat and (len(times) < FEWEST or time.perf_counter() - start < LONGEST_S):
        times.append(read(once, inner))
    middle = statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else (middle, middle, middle)
    return Timed(seconds=middle, spread=(high - low) / (2 * middle), count=len(times))


def by_clock(once: Callable[[], Any], inner: int) -> float:
    """Return the seconds of one of ``inner`` runs, by the clock of the host."""
    start = time.perf_counter()
    for _ in range(inner):
        once()
    return (time.perf_counter() - start) / inner


def on_cuda(once: Callable[[], Any], inner: int) -> float:
    """Return the seconds of one of ``inner`` runs, by events of the current CUDA device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(inner):
        once()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / inner
