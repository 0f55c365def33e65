"""A batch that grows with the number of devices."""

from dataclasses import dataclass

from forerun.spaces.errors import RequestError


@dataclass(frozen=True, slots=True)
class PerDevice:
    """A global batch with a fixed number of samples per device, ``64/gpu``; 0: as many as fit, ``max/gpu``."""

    samples: int

    def __str__(self) -> str:
        return f"{self.samples or MAXIMUM}/gpu"


MAXIMUM = "max"
LARGEST = PerDevice(0)
"""The largest batch that fits into the memory of a device."""


def parse_batch(text: str) -> int | PerDevice:
    """Return a global batch from its text: an integer, or a number per device.

    >>> parse_batch("64/gpu")
    PerDevice(samples=64)
    >>> str(parse_batch("max/gpu"))
    'max/gpu'

    Raises:
        RequestError: the text is neither.
    """
    number, slash, unit = text.lower().partition("/")
    if number == MAXIMUM and unit in ("gpu", "device"):
        return LARGEST
    if not number.isdecimal() or len(number) > 18 or (slash and unit not in ("gpu", "device")):
        raise RequestError(f"a global batch is a whole number, or one per GPU like 64/gpu or max/gpu, but got {text!r}")
    return PerDevice(int(number)) if slash else int(number)
