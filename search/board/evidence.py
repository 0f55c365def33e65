"""The measured runs that support a prediction."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KIND, FRAMEWORK_THERE, DEVICE, FRAMEWORK, NOTHING = (
    "device, framework and kind", "device and framework", "device", "framework", "none",
)  # fmt: skip
"""Properties that the nearest measured runs share with a prediction."""
LEVELS = (KIND, FRAMEWORK_THERE, DEVICE, FRAMEWORK, NOTHING)
"""The same properties, in order of their number."""
CALIBRATED, GROUPS = "calibration", "groups"
"""The runs are the user's own; the nodes are of groups that differ."""
_BASIS = {
    FRAMEWORK_THERE: "80% range from the errors of other kinds of model, left out one at a time",
    DEVICE: "80% range from the errors of other frameworks, left out one at a time",
    FRAMEWORK: "80% range from the errors on other devices, left out one at a time",
    NOTHING: "80% range from the errors on other devices and of other frameworks, left out one at a time",
    GROUPS: "80% range that covers those of all groups",
}
"""Source of a range without nearer runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestRuns:
    """The nearest measured runs of a prediction."""

    level: str
    """Properties shared with the prediction, or ``CALIBRATED`` or ``GROUPS``."""
    runs: int
    """Number of runs; 0 if unknown."""
    text: str
    """Available and missing runs, as a clause."""
    figures: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Errors of their predictions (an entry of ``figures``)."""

    @property
    def near(self) -> bool:
        """Whether runs of this framework on this device were measured."""
        return self.level in (KIND, FRAMEWORK_THERE, CALIBRATED)

    @property
    def basis(self) -> str:
        """Source of a range without nearer runs, as a clause; empty with such runs."""
        return _BASIS.get(self.level, "")

    @property
    def source(self) -> str:
        """The runs and the source of a range, as a clause."""
        return f"{self.text}; {self.basis}" if self.basis else f"from {self.text}"

    def to_json(self) -> dict[str, Any]:
        """Return the evidence as plain data."""
        return {"shares": self.level, "runs": self.runs, "text": self.text, "basis": self.basis}


OWN_RUNS = NearestRuns(level=CALIBRATED, runs=0, text="the runs of the calibration")
"""The evidence of a calibrated prediction."""
