"""A batch that grows with the number of devices."""

from dataclasses import dataclass

from forerun.spaces.errors import RequestError


@dataclass(frozen=True, slots=True)
class PerDevice:
    """A global batch of so many samples on every device: ``64/gpu``."""

    samples: int

    def __str__(self) -> str:
        return f"{self.samples}/gpu"


def parse_batch(text: str) -> int | PerDevice:
    """Return a global batch: a whole number, or one per device.

    >>> parse_batch("64/gpu")
    PerDevice(samples=64)

    Raises:
        RequestError: it is neither.
    """
    number, slash, unit = text.lower().partition("/")
    if not number.isdecimal() or len(number) > 18 or (slash and unit not in ("gpu", "device")):
        raise RequestError(f"a global batch is a whole number, or one per GPU like 64/gpu, but got {text!r}")
    return PerDevice(int(number)) if slash else int(number)
