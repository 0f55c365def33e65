"""Times of the stages of a pipeline, the input of the closed forms of schedules.

Shapes: R runs of equal stages in pipeline order, each with its number of stages (0 in padding); S strategies with
distinct pipelines.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Passes of one microbatch per run of equal stages (in pipeline order) and strategy, [R, S]."""

    forward_s: Floats
    backward_s: Floats
    weight_s: Floats
    """Weight-gradient part of ``backward_s``."""
    multiplicity: Floats
    """Stages of the run (0 in padding)."""
    first: Floats
    """Number of the run's first stage."""
    prepare_s: float = 0.0
    """Host time before every forward pass."""

    @property
    def pace_s(self) -> Floats:
        """Passes of one microbatch on the slowest stage, shape S."""
        both = np.where(self.multiplicity > 0, self.forward_s + self.backward_s, 0.0)
        return np.asarray(both.max(axis=0))

    def columns(self, some: NDArray[np.intp]) -> "StageTimes":
        """Return the stages of some strategies."""
        return StageTimes(
            forward_s=self.forward_s[:, some],
            backward_s=self.backward_s[:, some],
            weight_s=self.weight_s[:, some],
            multiplicity=self.multiplicity[:, some],
            first=self.first[:, some],
            prepare_s=self.prepare_s,
        )


def total_over_stages(multiplicity: Floats, values: Floats) -> Floats:
    """Sum over stages, row by row: numpy sums a single column in another order than many columns."""
    total: Floats = np.zeros_like(values[0])
    for count, value in zip(multiplicity, values, strict=True):
        total = total + count * value
    return total


def excess(values: Floats, stages: StageTimes, end: int) -> Floats:
    """Return the excess of the first (0) or the last (-1) stage over all others, 0 for none; shape S."""
    count = stages.multiplicity
    last = np.maximum((count > 0).sum(axis=0) - 1, 0) if end else np.zeros(count.shape[1], dtype=np.intp)
    at = np.arange(len(count))[:, None] == last
    others = np.where(count - at > 0, values, 0.0).max(axis=0)
    return np.asarray(np.maximum(values[last, np.arange(count.shape[1])] - others, 0.0))


def sum_before(count: Floats, values: Floats) -> Floats:
    """Return the sum over all stages before each run."""
    total = np.zeros_like(values)
    for row in range(1, len(values)):
        total[row] = total[row - 1] + count[row - 1] * values[row - 1]
    return total


def sum_after(count: Floats, values: Floats) -> Floats:
    """Return the sum over all later stages of each run."""
    return sum_before(count[::-1], values[::-1])[::-1]
