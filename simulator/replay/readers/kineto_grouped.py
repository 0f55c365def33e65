"""Sends and receives that were asked for one by one and run as one kernel (``batch_isend_irecv``, pipelines on GPUs).

Such a kernel carries no arguments: each send and receive left a record (``record_param_comms``) on the thread that then
launched the kernel of all of them. Records of a kernel with arguments of its own are known by its external id.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from forerun.simulator.replay.readers.kineto_events import Columns
from forerun.simulator.replay.readers.kineto_messages import operation_of, whole

_PAIRS = ("send", "receive")


class GroupedCalls:
    """Records of sends and receives by thread, in the order of their launches; each is taken once."""

    def __init__(self, columns: Columns, origin_us: float) -> None:
        known = {
            whole(arguments.get("External id"))
            for arguments in columns.arguments.values()
            if arguments.get("Collective name")
        }
        self._waiting: dict[int, deque[tuple[float, Mapping[str, Any]]]] = {}
        for start_us, lane, arguments in sorted(columns.records, key=lambda one: (one[1], one[0])):
            pair = operation_of(str(arguments.get("Collective name", ""))) in _PAIRS
            if pair and whole(arguments.get("External id")) not in known:
                self._waiting.setdefault(lane, deque()).append((start_us - origin_us, arguments))

    def taken(self, lane: int, launch_us: float) -> list[Mapping[str, Any]]:
        """Return the arguments of what a launch on a thread sends and receives: all that was recorded since the one
        before."""
        waiting, found = self._waiting.get(lane, deque()), []
        while waiting and waiting[0][0] <= launch_us:
            found.append(waiting.popleft()[1])
        return found
