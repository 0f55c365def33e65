"""Activations and parameters that one pipeline rank keeps in its host's memory, and the copies of them.

Copies have streams of their own: they overlap with passes and traffic, and only their order and the few layers for
which the device has buffers (``COPY_AHEAD``) hold them up.
"""

from collections import deque
from collections.abc import Sequence

from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.assignment.host import COPY_AHEAD
from forerun.simulator.events.engine.graph import EventGraph, Tag
from forerun.simulator.events.engine.kinds import COPY
from forerun.simulator.events.step.pass_traffic import PassTraffic
from forerun.spaces.schedules import Action, Pass


def host_traffic(costs: StepCosts, action: Action) -> list[PassTraffic]:
    """Return what a pass copies: parameters that it waits for, and activations that it sends away or gets back."""
    cost, found = costs.chunks[action.chunk], list[PassTraffic]()
    if action.kind == Pass.WEIGHT_GRADIENT:  # needs no parameters; its activations are back
        return found
    if cost.fetch_bytes:
        found.append(PassTraffic(3, cost.fetches, 0.0, 0.0, cost.fetch_bytes / costs.host_bytes_per_s))
    if cost.host_bytes:
        seconds = cost.host_bytes / costs.host_bytes_per_s
        found.append(PassTraffic(3, cost.host_parts, 0.0, 0.0, kept_s=seconds, kept_bytes=cost.host_bytes))
    return found


class HostCopies:
    """Adds the copies of one pipeline rank. ``to_host``, ``from_host``: its two copy streams.

    ``away``: copies of what was kept, by a key of the caller's, in the order in which they left; ``leaving``: the last
    of them.
    """

    def __init__(self, graph: EventGraph, to_host: int, from_host: int) -> None:
        self.graph, self.to_host, self.from_host = graph, to_host, from_host
        self.away: dict[Tag, list[int]] = {}
        self.leaving: deque[int] = deque(maxlen=COPY_AHEAD)

    def fetch(self, seconds: float, after: int, tag: Tag) -> int:
        """Copy parameters to the device once task ``after`` has ended; return the copy."""
        return self.graph.add(COPY, seconds, self.from_host, (after,), tag=tag)

    def space(self) -> tuple[int, ...]:
        """Return the copy that must have ended before further activations have room on the device."""
        return (self.leaving[0],) if len(self.leaving) == COPY_AHEAD else ()

    def send_away(self, key: Tag, task: int, seconds: float, size: float, devices: Sequence[int], tag: Tag) -> None:
        """Copy the ``size`` bytes that ``task`` of a forward pass keeps on each of ``devices`` to the host; they are
        there until then."""
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
        """Copy ``size`` bytes of activations back once task ``after`` has ended, for a ``part`` of a backward pass
        (number, of how many); return the copy."""
        away, (number, count) = self.away[key], part
        # Backward passes read in reverse: what left last comes back first.
        left = away[-1 - number * len(away) // count]
        task = self.graph.add(COPY, seconds, self.from_host, (after, left), tag=tag)
        for device in devices:
            self.graph.hold(task, device, size)
        return task

    def forget(self, key: Tag) -> None:
        """Drop the copies of a pass that has all of them back: a long run keeps none."""
        self.away.pop(key, None)
