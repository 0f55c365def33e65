"""Variants of a row: strategies with the same degrees within the prediction error."""

from dataclasses import dataclass
from typing import Any

from forerun.spaces.strategies import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A strategy with a row's degrees and other choices on other axes, with predicted step, peak and OOM risk."""

    strategy: Strategy
    step_time_s: float
    peak_memory_gib: float
    oom_risk: float

    def to_json(self) -> dict[str, Any]:
        """Return the variant as plain data."""
        return {
            "strategy": str(self.strategy),
            "step_time_s": self.step_time_s,
            "peak_memory_gib": self.peak_memory_gib,
            "oom_risk": self.oom_risk,
        }
