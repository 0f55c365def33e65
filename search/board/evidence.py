"""The measured runs that support a prediction."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KIND, FRAMEWORK_THERE, DEVICE, FRAMEWORK, NOTHING = (
    "device, framework and kind", "device and framework", "device", "framework", "none",
)  # fmt: skip
"""What the nearest measured runs share with a prediction."""
CALIBRATED = "calibration"
_LEFT_OUT = {
    FRAMEWORK_THERE: "other kinds of model",
    DEVICE: "other frameworks",
    FRAMEWORK: "other devices",
    NOTHING: "other devices and frameworks",
}
"""Whose predictions, each left out in turn, a range without nearer runs is from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestRuns:
    """The nearest measured runs of a prediction."""

    level: str
    """What they share with it; "calibration": they are the user's own."""
    runs: int
    """How many there are; 0 where their number is not known."""
    text: str
    """Which runs there are, and which there are not, as a clause."""
    figures: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """How well predictions met them (an entry of ``figures``)."""

    @property
    def near(self) -> bool:
        """Whether runs of this framework on this device were measured."""
        return self.level in (KIND, FRAMEWORK_THERE, CALIBRATED)

    @property
    def basis(self) -> str:
        """What a range without nearer runs is from, as a clause; empty with such runs."""
        if self.level not in _LEFT_OUT:
            return ""
        return f"80% range from predictions of {_LEFT_OUT[self.level]}, each left out"

    @property
    def source(self) -> str:
        """The runs, and what a range is from, as a clause."""
        return f"{self.text}; {self.basis}" if self.basis else f"from {self.text}"

    def to_json(self) -> dict[str, Any]:
        """Return the evidence as plain data."""
        return {"shares": self.level, "runs": self.runs, "text": self.text, "basis": self.basis}


OWN_RUNS = NearestRuns(level=CALIBRATED, runs=0, text="the runs of the calibration")
"""The evidence of a calibrated prediction."""
