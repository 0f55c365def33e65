"""Sends and receives requested one by one and run as one kernel (``batch_isend_irecv``, pipelines on GPUs).

Such a kernel has no arguments: each send and receive left a record (``record_param_comms``) on the thread that launched
their common kernel. Records of a kernel with its own arguments are identified by its external id.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from forerun.simulator.replay.readers.kineto_events import Columns
from forerun.simulator.replay.readers.kineto_messages import operation_of, whole

_PAIRS = ("send", "receive")


class GroupedCalls:
    """Records of sends and receives by thread, in the order of launches; each is used once."""

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
        """Return the arguments of a launch's sends and receives: all records of its thread since the last launch."""
        waiting, messages = self._waiting.get(lane, deque()), []
        while waiting and waiting[0][0] <= launch_us:
            messages.append(waiting.popleft()[1])
        return messages
