"""Activations and parameters that one pipeline rank keeps in its host's memory, and the copies of them.

Copies have streams of their own: they overlap with passes and traffic, and only their order and the few layers for
which the device has buffers (``COPY_AHEAD``) hold them up.
"""

from collections import deque

from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.assignment.host import COPY_AHEAD
from forerun.simulator.events.engine.graph import EventGraph
from forerun.simulator.events.engine.kinds import COPY
from forerun.simulator.events.step.pass_traffic import PassTraffic
from forerun.simulator.schedules import Action, Pass


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
    """Adds the copies of one device. ``to_host``, ``from_host``: its two copy streams.

    ``away``: copies by microbatch and model chunk, in the order in which they left; ``leaving``: the last of them.
    """

    def __init__(self, graph: EventGraph, device: int, to_host: int, from_host: int) -> None:
        self.graph, self.device, self.to_host, self.from_host = graph, device, to_host, from_host
        self.away: dict[tuple[int, int], list[int]] = {}
        self.leaving: deque[int] = deque(maxlen=COPY_AHEAD)

    def fetch(self, seconds: float, after: int, tag: tuple[object, ...]) -> int:
        """Copy the parameters of one segment to the device once task ``after`` has ended; return the copy."""
        return self.graph.add(COPY, seconds, self.from_host, (after,), tag=(*tag, "parameters"))

    def space(self) -> tuple[int, ...]:
        """Return the copy that must have ended before another segment's activations have room on the device."""
        return (self.leaving[0],) if len(self.leaving) == COPY_AHEAD else ()

    def send_away(self, action: Action, number: int, task: int, seconds: float, size: float) -> None:
        """Copy the ``size`` bytes that ``task``, a segment of a forward pass, keeps to the host; they are on the device
        until then."""
        self.graph.hold(task, self.device, size)
        tag = (action.microbatch, action.chunk, number, "away")
        copy = self.graph.add(COPY, seconds, self.to_host, (task,), tag=tag)
        self.graph.hold(copy, self.device, -size, at_end=True)
        self.away.setdefault((action.microbatch, action.chunk), []).append(copy)
        self.leaving.append(copy)

    def bring_back(self, action: Action, number: int, count: int, seconds: float, size: float, after: int) -> int:
        """Copy ``size`` bytes of activations back for segment ``number`` of ``count`` of a backward pass, once task
        ``after`` has ended; return the copy."""
        away = self.away[action.microbatch, action.chunk]
        # Backward passes read in reverse: what left last comes back first.
        left = away[-1 - number * len(away) // count]
        tag = (action.microbatch, action.chunk, number, "back")
        task = self.graph.add(COPY, seconds, self.from_host, (after, left), tag=tag)
        self.graph.hold(task, self.device, size)
        return task

    def forget(self, action: Action) -> None:
        """Drop the copies of a pass that has all of them back: a long run keeps none."""
        self.away.pop((action.microbatch, action.chunk), None)
