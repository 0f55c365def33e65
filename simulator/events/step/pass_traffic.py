"""Traffic of one pass of a pipeline rank."""

from collections.abc import Sequence
from typing import NamedTuple


class PassTraffic(NamedTuple):
    """Traffic of one kind during one pass.

    A tuple, since a step creates one for every pass of every device.
    """

    zero: int
    """Sharding stage that causes it."""
    buckets: int
    """Parts it goes in, each of which overlaps with one segment of the pass."""
    reduced_s: float
    """Seconds of gradient reduction that the pass gives rise to."""
    gathered_s: float
    """Seconds of parameter gathers that the pass waits for."""
    copied_s: float = 0.0
    """Seconds of parameters copied from the host, which the pass waits for."""
    kept_s: float = 0.0
    """Seconds of activations copied to the host behind a forward pass, or back before a backward one."""
    kept_bytes: float = 0.0
    """The bytes of these activations."""


def stage_tag(zero: int, traffic: Sequence[PassTraffic]) -> tuple[object, ...]:
    """Return the part of a tag that distinguishes the traffic of ZeRO stages during one pass."""
    return (f"zero{zero}",) if len(traffic) > 1 else ()
