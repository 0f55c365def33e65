"""Scores of candidates: time, memory and verdict per row, as a structure of arrays."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.strategies import Context, HeldMemory

Floats = NDArray[np.float64]

TIME_PARTS = (
    "compute",
    "recompute",
    "tensor",
    "context",
    "expert",
    "pipeline",
    "bubble",
    "data",
    "optimizer",
    "host",
)
"""Parts of a step, in the order of output; they sum to the step time. Communication parts are exposed communication;
``host`` is launch-bound time."""

MEMORY_PARTS = (
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "working",
    "logits",
    "buffers",
    "reserve",
)
"""Parts of a device's peak memory, in the order of output; they sum to the peak. ``working`` is the recompute working
set and transient tensors, ``buffers`` communication and gather buffers, ``reserve`` context, communicators and
fragmentation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """Scores of N candidates, in the order of their source table."""

    step_time_s: Floats
    """Seconds of one optimizer step, shape N."""
    time_s: Mapping[str, Floats]
    """Seconds by part (``TIME_PARTS``), shape N each."""
    peak_memory_bytes: Floats
    """The largest peak of all stages, shape N."""
    allocated_bytes: Floats
    """Peak of live tensors as reported by the framework's allocator, without reserve, shape N."""
    memory_bytes: Mapping[str, Floats]
    """Bytes of the peak by part (``MEMORY_PARTS``), shape N each."""
    peak_stage: NDArray[np.int64]
    """The pipeline rank with the peak, shape N."""
    fits: NDArray[np.bool_]
    """Whether the peak is below the device's memory, shape N."""
    oom_risk: Floats | None = None
    """Calibrated OOM risk, shape N; None where memory was not calibrated."""
    limit_bytes: Floats | None = None
    """Memory limit of each candidate, shape N; None: the context's limit for all."""

    def __len__(self) -> int:
        return len(self.step_time_s)

    def slowed(self, factor: Floats) -> Self:
        """Return the scores with every step, and each of its parts, ``factor`` (N) times as long."""
        return replace(
            self,
            step_time_s=self.step_time_s * factor,
            time_s={part: seconds * factor for part, seconds in self.time_s.items()},
        )

    def holding(self, held: HeldMemory) -> "ScoreTable":
        """Return the scores with the peak memory calibrated to measured runs."""
        peak = sum(held.parts.values(), np.zeros(len(self)))
        return replace(
            self,
            memory_bytes=dict(held.parts),
            peak_memory_bytes=peak,
            allocated_bytes=peak - held.parts["reserve"],
            fits=peak <= held.limit_bytes,
            oom_risk=held.oom_risk,
            limit_bytes=held.limit_bytes,
        )

    def take(self, rows: NDArray[np.intp]) -> "ScoreTable":
        """Return some rows, in the order given."""
        return _columnwise([self], lambda columns: columns[0][rows])

    def limits(self, context: Context) -> float | Floats:
        """Return the bytes that candidates may need to fit, per candidate or for all."""
        return context.memory_limit_bytes if self.limit_bytes is None else self.limit_bytes


def joined(tables: Sequence[ScoreTable], order: NDArray[np.intp]) -> ScoreTable:
    """Return the rows of several tables, concatenated and reordered."""
    return _columnwise(tables, lambda columns: np.concatenate(columns)[order])


def _columnwise(tables: Sequence[ScoreTable], made: Callable[[list[Any]], Any]) -> ScoreTable:
    """Return the table whose columns are ``made`` of the same column of every table."""

    def column(name: str) -> Any:
        values = [getattr(table, name) for table in tables]
        if values[0] is None:
            return None
        if isinstance(values[0], Mapping):
            return {part: made([value[part] for value in values]) for part in values[0]}
        return made(values)

    kind = type(tables[0])  # scores of splits have more columns
    return kind(**{field.name: column(field.name) for field in fields(kind)})
