"""Activations and parameters that one pipeline rank keeps in host memory, and their copies.

Copies have their own streams and overlap with passes and traffic; they wait only for their order and for the device's
few buffers of layers (``COPY_AHEAD``).
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.assignment.host import COPY_AHEAD
from forerun.simulator.events.engine.graph import EventGraph, Tag
from forerun.simulator.events.engine.kinds import COPY
from forerun.spaces.schedules import Action, Pass


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


def host_traffic(costs: StepCosts, action: Action) -> list[PassTraffic]:
    """Return the copies of a pass: parameters that it waits for, and activations sent to or fetched from the host."""
    cost, transfers = costs.chunks[action.chunk], list[PassTraffic]()
    if action.kind == Pass.WEIGHT_GRADIENT:  # needs no parameters; its activations are on the device
        return transfers
    if cost.fetch_bytes:
        transfers.append(PassTraffic(3, cost.fetches, 0.0, 0.0, cost.fetch_bytes / costs.host_bytes_per_s))
    if cost.host_bytes:
        seconds = cost.host_bytes / costs.host_bytes_per_s
        transfers.append(PassTraffic(3, cost.host_parts, 0.0, 0.0, kept_s=seconds, kept_bytes=cost.host_bytes))
    return transfers


class HostCopies:
    """Adds the copies of one pipeline rank.

    ``to_host``, ``from_host``: its two copy streams; ``away``: copies to the host by the caller's key, in order;
    ``leaving``: the last of them.
    """

    def __init__(self, graph: EventGraph, to_host: int, from_host: int) -> None:
        self.graph, self.to_host, self.from_host = graph, to_host, from_host
        self.away: dict[Tag, list[int]] = {}
        self.leaving: deque[int] = deque(maxlen=COPY_AHEAD)

    def fetch(self, seconds: float, after: int, tag: Tag) -> int:
        """Copy parameters to the device once task ``after`` has ended; return the copy."""
        return self.graph.add(COPY, seconds, self.from_host, (after,), tag=tag)

    def space(self) -> tuple[int, ...]:
        """Return the copy whose end makes room on the device for further activations."""
        return (self.leaving[0],) if len(self.leaving) == COPY_AHEAD else ()

    def send_away(self, key: Tag, task: int, seconds: float, size: float, devices: Sequence[int], tag: Tag) -> None:
        """Copy the ``size`` bytes that ``task`` of a forward pass keeps on each of ``devices`` to the host; they stay
        allocated on the device until the copy ends.
        """
        copy = self.graph.add(COPY, seconds, self.to_host, (task,), tag=tag)
        for device in devices:
            self.graph.hold(copy, device, -size, at_end=True)
        self.away.setdefault(key, []).append(copy)
        self.leaving.append(copy)

    def bring_back(
        self,
        key: Tag,
        after: int,
        seconds: float,
        size: float,
        devices: Sequence[int],
        tag: Tag,
        part: tuple[int, int] = (0, 1),
    ) -> int:
        """Copy ``size`` bytes back after task ``after``, for a ``part`` (number, count) of a backward pass; return the
        copy.
        """
        away, (number, count) = self.away[key], part
        # Backward passes read in reverse order: the last copy to the host returns first.
        left = away[-1 - number * len(away) // count]
        task = self.graph.add(COPY, seconds, self.from_host, (after, left), tag=tag)
        for device in devices:
            self.graph.hold(task, device, size)
        return task

    def forget(self, key: Tag) -> None:
        """Forget the copies of a pass that has fetched all of them: a long run keeps none."""
        self.away.pop(key, None)
