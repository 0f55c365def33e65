"""A batch that grows with the number of devices."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PerDevice:
    """A global batch of so many samples on every device: ``64/gpu``."""

    samples: int

    def __str__(self) -> str:
        return f"{self.samples}/gpu"
