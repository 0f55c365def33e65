"""Time calls on the GPU and write rows as they are measured."""

import csv
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch


def median_ms(call: Callable[[], Any], *, budget_ms: float = 40.0, most: int = 30) -> float:
    """Median of the device times of ``call`` in milliseconds, after warm-up; at least three readings."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    once_ms = max((time.perf_counter() - start) * 1e3, 1e-3)
    readings = []
    for _ in range(int(max(3, min(most, budget_ms / once_ms)))):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        readings.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in readings)


class Table:
    """A CSV file to which each row is written at once, so that a killed probe keeps what it measured."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._file = path.open("w", newline="")
        self._writer = csv.DictWriter(self._file, columns, restval="")
        self._writer.writeheader()

    def row(self, **values: Any) -> None:
        self._writer.writerow({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in values.items()})
        self._file.flush()


def attempt(label: str, call: Callable[[], Any]) -> None:
    """Run ``call``; where this GPU or this PyTorch cannot, print why and go on with the next shape."""
    try:
        call()
    except (RuntimeError, ValueError, AttributeError, torch.OutOfMemoryError) as error:
        print(f"{label}: {type(error).__name__}: {str(error).splitlines()[0][:200]}", flush=True)
        torch.cuda.empty_cache()
