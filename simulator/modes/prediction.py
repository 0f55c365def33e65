"""The prediction of a training mode."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePrediction:
    """Throughput of one mode with one number of workers.

    ``model``: analytic or events. ``step_s``: seconds between two steps of a worker (asynchronous: on average).
    ``samples_per_s``: of all workers, without dropped gradients. ``parts_s``: parts of a step, which sum to ``step_s``.
    ``bound_samples_per_s``: limit of the network (infinite: nothing is exchanged). ``staleness``: updates by other
    workers between a worker's fetch and its own update, mean over all updates; ``staleness_worst``: mean of the worker
    with the largest. Both are None where workers wait for each other.
    """

    model: str
    workers: int
    step_s: float
    samples_per_s: float
    parts_s: Mapping[str, float]
    bound_samples_per_s: float
    staleness: float | None = None
    staleness_worst: float | None = None

    def no_faster_than(self, least_s: float) -> "ModePrediction":
        """Return the prediction with steps no shorter than data loading."""
        if self.step_s >= least_s:
            return self
        parts = {**self.parts_s, "input": least_s - self.step_s}
        return replace(self, step_s=least_s, samples_per_s=self.samples_per_s * self.step_s / least_s, parts_s=parts)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain data; an infinite bound is None."""
        bound = self.bound_samples_per_s
        return {
            "workers": self.workers,
            "step_time_s": self.step_s,
            "samples_per_s": self.samples_per_s,
            "breakdown_s": dict(self.parts_s),
            "network_bound_samples_per_s": None if bound == float("inf") else bound,
            "staleness": self.staleness,
            "staleness_worst": self.staleness_worst,
        }
