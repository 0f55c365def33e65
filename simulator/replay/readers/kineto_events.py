"""The events of one PyTorch profiler file as columns, limited to the needs of a replay.

Format: Trace Event Format with the categories of Kineto (``cpu_op``, ``kernel``, ``cuda_runtime``, ...), times in
microseconds from ``baseTimeNanoseconds``. A file of a gigabyte has about five million events; a column entry takes 8
bytes, and names and shapes are stored once.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from forerun.simulator.replay.readers.json_stream import JsonStream, Progress, is_moment
from forerun.simulator.replay.readers.texts import number_of
from forerun.spaces.errors import RequestError

MOST_EVENTS = 100_000_000
"""Limit of stored events of one file: 6 GB of columns, far above what profilers can write."""


class Sort(IntEnum):
    """Kinds of events in a replay."""

    OPERATOR = 0
    LAUNCH = 1
    SYNC = 2
    KERNEL = 3
    COPY = 4
    MESSAGE = 5
    ISSUE = 6
    STEP = 7
    OPTIMIZER = 8


_DEVICE = {"kernel": Sort.KERNEL, "gpu_memcpy": Sort.COPY, "gpu_memset": Sort.COPY}
_RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "privateuse1_runtime"})
_SYNC = ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize")


@dataclass(slots=True)
class Columns:
    """Growing columns.

    ``names`` and ``variants``: numbers of texts in order of occurrence. ``arguments``: of events that exchange data, by
    event number; ``records``: start, lane and arguments of every call recorded by the host.
    """

    start_us: "array[float]" = field(default_factory=lambda: array("d"))
    duration_us: "array[float]" = field(default_factory=lambda: array("d"))
    sort: "array[int]" = field(default_factory=lambda: array("b"))
    lane: "array[int]" = field(default_factory=lambda: array("i"))
    name: "array[int]" = field(default_factory=lambda: array("i"))
    variant: "array[int]" = field(default_factory=lambda: array("i"))
    correlation: "array[int]" = field(default_factory=lambda: array("q"))
    names: dict[str, int] = field(default_factory=dict)
    variants: dict[str, int] = field(default_factory=dict)
    lanes: dict[tuple[str, str], int] = field(default_factory=dict)
    arguments: dict[int, dict[str, Any]] = field(default_factory=dict)
    external: dict[int, dict[str, Any]] = field(default_factory=dict)
    records: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)
    header: Mapping[str, Any] = field(default_factory=dict)
    events: int = 0

    def __len__(self) -> int:
        return len(self.start_us)

    def forget(self) -> None:
        """Free all columns with an entry per event."""
        self.start_us, self.duration_us, self.correlation = array("d"), array("d"), array("q")
        self.sort, self.lane, self.name, self.variant = array("b"), array("i"), array("i"), array("i")
        self.arguments, self.external, self.records = {}, {}, []


def read_columns(path: Path, progress: Progress | None = None) -> Columns:
    """Read one file.

    Raises:
        RequestError: as for ``JsonStream``, or an event has no time, or there are none.
    """
    columns, stream = Columns(), JsonStream(path, progress)
    for event in stream.items("traceEvents"):
        columns.events += 1
        if isinstance(event, dict) and event.get("ph") == "X":
            _take(columns, event, path)
    columns.header = stream.header
    return columns


def _take(columns: Columns, event: dict[str, Any], path: Path) -> None:
    """Keep one complete event if a replay needs it."""
    category, name = event.get("cat"), event.get("name")
    if not isinstance(name, str) or not isinstance(category, str):
        return
    arguments = event.get("args")
    if not isinstance(arguments, dict):
        arguments = {}
    sort = _sort(category, name, arguments)
    if sort is None:
        if name == "record_param_comms":
            if isinstance(arguments.get("External id"), int):
                columns.external[arguments["External id"]] = arguments
            moment = event.get("ts")
            if is_moment(moment) and len(columns.records) < MOST_EVENTS:
                columns.records.append((moment, _lane(columns, event), arguments))
        return
    start, duration = event.get("ts"), event.get("dur")
    if not is_moment(start) or not is_moment(duration) or duration < 0:
        raise RequestError(
            f"an event has a start and a duration of at least 0 in microseconds, but {name[:60]!r} in {path} has "
            f"ts={start!r:.40}, dur={duration!r:.40}; was the trace edited?"
        )
    if len(columns) >= MOST_EVENTS:
        raise RequestError(f"{path} has more than {MOST_EVENTS:,} events; profile fewer steps")
    number = len(columns)
    columns.start_us.append(start)
    columns.duration_us.append(duration)
    columns.sort.append(sort)
    columns.lane.append(_lane(columns, event))
    columns.name.append(number_of(columns.names, name, path))
    shape = arguments.get("grid") or arguments.get("Input Dims") or ""
    columns.variant.append(columns.variants.setdefault(str(shape)[:120], len(columns.variants)))
    correlation = arguments.get("correlation")
    is_correlated = isinstance(correlation, int) and abs(correlation) < 2**62
    columns.correlation.append(correlation if is_correlated else -1)  # type: ignore[arg-type]  # checked by is_correlated
    if (
        sort in (Sort.MESSAGE, Sort.ISSUE)
        or "AccumulateGrad" in name
        or (sort == Sort.KERNEL and "nccl" in name.lower())
    ):
        columns.arguments[number] = arguments


def _lane(columns: Columns, event: dict[str, Any]) -> int:
    """Return the number of the thread or stream of an event."""
    key = (str(event.get("pid"))[:40], str(event.get("tid"))[:40])
    return columns.lanes.setdefault(key, len(columns.lanes))


def _sort(category: str, name: str, arguments: dict[str, Any]) -> Sort | None:
    """Return the kind of an event, None where a replay does not need it."""
    if category == "cpu_op":
        if name == "record_param_comms":
            return None
        if name.startswith("gloo:"):
            return Sort.MESSAGE
        return Sort.ISSUE if name.startswith("c10d::") else Sort.OPERATOR
    if category in _DEVICE:
        return _DEVICE[category]
    if category in _RUNTIME:
        if name.endswith(_SYNC):
            return Sort.SYNC
        return Sort.LAUNCH if "correlation" in arguments else None
    if category == "user_annotation":
        if name.startswith("gloo:"):
            return Sort.MESSAGE
        if name.startswith("ProfilerStep#"):
            return Sort.STEP
        return Sort.OPTIMIZER if name.startswith("Optimizer.step#") else None
    return None
