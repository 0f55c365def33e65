"""Variants of a row: strategies with its degrees that no prediction can tell from it."""

from dataclasses import dataclass
from typing import Any

from forerun.spaces.strategies import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A strategy that differs from a row's in other axes than its degrees, with its predicted step, peak and risk of
    running out of memory."""

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
