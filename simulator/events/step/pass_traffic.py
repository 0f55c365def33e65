"""Traffic of one pass of a pipeline rank."""

from collections.abc import Sequence
from typing import NamedTuple


class PassTraffic(NamedTuple):
    """Traffic of one kind during one pass; a tuple, since a step creates one for every pass of every device."""

    zero: int
    """ZeRO stage that causes it."""
    buckets: int
    """Number of its parts, each of which overlaps one segment of the pass."""
    reduced_s: float
    """Seconds of gradient reduction caused by the pass."""
    gathered_s: float
    """Seconds of parameter gathers before the pass."""
    copied_s: float = 0.0
    """Seconds of copies of parameters from the host before the pass."""
    kept_s: float = 0.0
    """Seconds of copies of activations to the host after a forward pass, or back before a backward pass."""
    kept_bytes: float = 0.0
    """Bytes of these activations."""


def stage_tag(zero: int, traffic: Sequence[PassTraffic]) -> tuple[object, ...]:
    """Return the part of a tag that distinguishes the traffic of ZeRO stages during one pass."""
    return (f"zero{zero}",) if len(traffic) > 1 else ()
