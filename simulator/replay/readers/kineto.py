"""Spans of one rank from the columns of a PyTorch profiler file.

Threads of the host become lanes of their outermost operators, divided at each launch, so that a kernel or a message
waits only for the preceding part of its operator. A call that waits for the device is removed; its wait is inferred
again from the order of events. Where kernels ran, the host only drives them.
"""

import re
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from forerun.simulator.replay.readers.json_stream import Progress
from forerun.simulator.replay.readers.kineto_events import Columns, Sort, read_columns
from forerun.simulator.replay.readers.kineto_host import HostLanes
from forerun.simulator.replay.readers.kineto_messages import (
    MOST_RANKS,
    host_message,
    is_grouped,
    kernel_message,
    numbers,
    operation_of,
    whole,
)
from forerun.simulator.replay.readers.spans import Spans
from forerun.simulator.replay.trace import Floats, Integers, Place, RankTrace, SpanKind, SpanMessage, SpanPhase
from forerun.spaces.errors import RequestError

_KINDS = {"send": SpanKind.SEND, "receive": SpanKind.RECEIVE}
_DONE_AS = {"reduce_scatter": "all_reduce"}
"""Operations that gloo runs in place of the requested ones: it scatters a sum that it has reduced for all."""
_ASKED_US = 50.0
"""Microseconds by which a message's recorded start may precede the call that requested it."""


def read_kineto(path: Path, progress: Progress | None = None) -> tuple[RankTrace, int]:
    """Return the rank of one file and the origin of its times, in microseconds of its clock.

    Raises:
        RequestError: the file is not a complete trace of one rank.
    """
    columns = read_columns(path, progress)
    if not len(columns):
        raise RequestError(
            f"a trace has operators or kernels, but {path} has {columns.events:,} events and none of them; export it "
            "with torch.profiler from the steps that train"
        )
    return _Reduction(columns, path).run()


class _Reduction:
    """Reduces one file; event numbers index the columns, span numbers the resulting spans."""

    def __init__(self, columns: Columns, path: Path) -> None:
        self.columns, self.path = columns, path
        start = np.frombuffer(columns.start_us, dtype=np.float64)
        origin = int(start.min())
        self.origin, self.base = origin, origin + _base_us(columns)
        self.start: Floats = start - origin
        self.end: Floats = self.start + np.frombuffer(columns.duration_us, dtype=np.float64)
        self.sort = np.frombuffer(columns.sort, dtype=np.int8)
        self.lane = np.frombuffer(columns.lane, dtype=np.int32)
        self.names = list(columns.names)
        self.rank, self.world, self.groups = _place(columns, path)
        self.spans = Spans()

    def run(self) -> tuple[RankTrace, int]:
        """Return the trace and its origin."""
        device = bool(np.isin(self.sort, (Sort.KERNEL, Sort.COPY)).any())
        host = np.isin(self.sort, (Sort.OPERATOR, Sort.ISSUE))
        if device:
            host |= np.isin(self.sort, (Sort.LAUNCH, Sort.SYNC))
        places: dict[int, Place] = {}
        hosts = HostLanes(
            columns=self.columns,
            spans=self.spans,
            start=self.start,
            end=self.end,
            sort=self.sort,  # type: ignore[arg-type]  # small whole numbers
            lane=self.lane,  # type: ignore[arg-type]  # small whole numbers
            kind=SpanKind.HOST if device else SpanKind.COMPUTE,
            optimizer=self._intervals(Sort.OPTIMIZER),
            begins=self._begins(),
            ends=sorted(self.end[self.sort == Sort.MESSAGE].tolist()),
        )
        known, first = np.unique(self.lane[host], return_index=True)
        for lane in known[np.argsort(first)].tolist():
            events = np.flatnonzero(host & (self.lane == lane))
            if not self._carries(lane, events):
                places[lane] = Place.HOST
                hosts.add(events)
        self._device(places, hosts)
        self._messages(places, hosts)
        marks, ready = self._intervals(Sort.STEP), hosts.ready
        # Columns and their indices are as large as the spans: free them before the spans are sorted.
        del hosts, host, self.start, self.end, self.sort, self.lane
        self.columns.forget()
        return self._trace(places, ready, marks), self.base

    def _begins(self) -> dict[int, list[float]]:
        """Return the starts of messages, by the lane of the recording thread."""
        starts: dict[int, list[float]] = {}
        for event in self._by_start(Sort.MESSAGE):
            starts.setdefault(int(self.lane[event]), []).append(float(self.start[event]))
        return starts

    def _carries(self, lane: int, events: Integers) -> bool:
        """Check whether all events of a thread are within its recorded messages, so that its copies belong to them."""
        messages = np.flatnonzero((self.sort == Sort.MESSAGE) & (self.lane == lane))
        if not len(messages):
            return False
        messages = messages[np.argsort(self.start[messages], kind="stable")]
        last = np.searchsorted(self.start[messages], self.start[events], side="right") - 1
        return bool((last >= 0).all() and (self.end[events] <= self.end[messages[last]]).all())

    def _intervals(self, sort: Sort) -> Floats:
        """Return starts and ends [n, 2] of marks, in order."""
        chosen = np.flatnonzero(self.sort == sort)
        chosen = chosen[np.argsort(self.start[chosen], kind="stable")]
        return np.column_stack([self.start[chosen], self.end[chosen]])

    def _device(self, places: dict[int, Place], hosts: HostLanes) -> None:
        """Add kernels and copies, each after its launch."""
        columns, groups, grouped = self.columns, _pg_ranks(self.columns), []
        for event in np.flatnonzero(np.isin(self.sort, (Sort.KERNEL, Sort.COPY))).tolist():
            # Comparing a NumPy number with an enumeration looks up attributes, where NumPy would swallow a signal.
            sort, number = columns.sort[event], columns.name[event]
            name, message = self.names[number], None
            if sort == Sort.KERNEL and is_grouped(name, columns.arguments.get(event, {})):
                grouped.append(event)
                continue
            if sort == Sort.KERNEL and event in columns.arguments:
                values = columns.arguments[event]
                arguments = {**columns.external.get(whole(values.get("External id")), {}), **values}
                message = kernel_message(name, arguments, self.rank, groups, str(self.path))
            kind = SpanKind.COPY if sort == Sort.COPY else SpanKind.COMPUTE
            if message is not None:
                kind = _KINDS.get(message.operation, SpanKind.COLLECTIVE)
            piece = hosts.piece_of.get(hosts.of_correlation.get(columns.correlation[event], -1), -1)
            phase = self.spans.phase[piece] if piece >= 0 else SpanPhase.OTHER
            lane = int(self.lane[event])
            places.setdefault(lane, Place.DEVICE)
            low, high = float(self.start[event]), float(self.end[event])
            span = self.spans.add(low, high, lane, number, kind, phase, columns.variant[event], cause=piece)
            if message is not None:
                self.spans.messages[span] = message
        self._grouped(grouped, places, hosts, groups)

    def _grouped(
        self, events: list[int], places: dict[int, Place], hosts: HostLanes, groups: dict[str, tuple[int, ...]]
    ) -> None:
        """Add kernels for several calls: sends leave at the kernel's start, receives end with it."""
        columns, calls = self.columns, GroupedCalls(self.columns, self.origin)
        launches = [hosts.of_correlation.get(columns.correlation[event], -1) for event in events]
        for event, launch in sorted(zip(events, launches, strict=True), key=lambda one: (self._launched(*one), one[0])):
            number, lane = columns.name[event], int(self.lane[event])
            name = self.names[number]
            asked = calls.taken(int(self.lane[launch]), float(self.start[launch])) if launch >= 0 else []
            kernels = [kernel_message(name, arguments, self.rank, groups, str(self.path)) for arguments in asked]
            messages = [one for one in kernels if one is not None]
            if not messages:  # no call was recorded: without a match it keeps its measured duration
                messages = [SpanMessage(operation="send", size_bytes=float("nan"), ranks=(self.rank, self.rank))]
            piece = hosts.piece_of.get(launch, -1)
            phase = self.spans.phase[piece] if piece >= 0 else SpanPhase.OTHER
            places.setdefault(lane, Place.DEVICE)
            low, high = float(self.start[event]), float(self.end[event])
            messages.sort(key=lambda one: one.operation == "receive")
            whole_at = next((at for at, one in enumerate(messages) if one.operation == "receive"), len(messages) - 1)
            for at, message in enumerate(messages):
                begin, end = (low, low) if at < whole_at else (high, high) if at > whole_at else (low, high)
                kind = _KINDS[message.operation]
                span = self.spans.add(begin, end, lane, number, kind, phase, columns.variant[event], cause=piece)
                self.spans.messages[span] = message

    def _launched(self, event: int, launch: int) -> float:
        """Return the launch time of an event, or its start where it has no launch."""
        return float(self.start[launch if launch >= 0 else event])

    def _messages(self, places: dict[int, Place], hosts: HostLanes) -> None:
        """Add gloo's messages, each after the call that requested it."""
        columns = self.columns
        asked: dict[str, list[int]] = {}
        for event in self._by_start(Sort.ISSUE)[::-1]:
            operation = operation_of(self.names[columns.name[event]])
            if operation is not None:
                asked.setdefault(_DONE_AS.get(operation, operation), []).append(event)
        for event in self._by_start(Sort.MESSAGE):
            operation = operation_of(self.names[columns.name[event]])
            if operation is None:
                continue
            lane = int(self.lane[event])
            if places.get(lane) != Place.NETWORK:
                lane = self._network_lane(lane, places)
            waiting = asked.get(_DONE_AS.get(operation, operation), [])
            early = bool(waiting) and self.start[waiting[-1]] <= self.start[event] + _ASKED_US
            issue = waiting.pop() if early else -1
            piece = hosts.piece_of.get(issue, -1)
            phase = self.spans.phase[piece] if piece >= 0 else SpanPhase.OTHER
            kind = _KINDS.get(operation, SpanKind.COLLECTIVE)
            low, high = float(self.start[event]), float(self.end[event])
            if issue >= 0 and self.lane[issue] == self.lane[event] and hosts.blocked(issue):
                low = float(self.start[issue])
            variant, name = columns.variant[event], columns.name[event]
            span = self.spans.add(low, high, lane, name, kind, phase, variant, cause=piece)
            arguments, asking = columns.arguments.get(event, {}), columns.arguments.get(issue, {})
            self.spans.messages[span] = host_message(operation, arguments, asking, self.rank)

    def _by_start(self, sort: Sort) -> list[int]:
        chosen = np.flatnonzero(self.sort == sort)
        ordered: list[int] = chosen[np.argsort(self.start[chosen], kind="stable")].tolist()
        return ordered

    def _network_lane(self, lane: int, places: dict[int, Place]) -> int:
        """Return a separate lane for the messages that a thread of operators reports."""
        if lane in places:
            lane = self.columns.lanes.setdefault(("network", str(lane)), len(self.columns.lanes))
        places[lane] = Place.NETWORK
        return lane

    def _trace(self, places: dict[int, Place], ready: list[tuple[float, float]], marks: Floats) -> RankTrace:
        """Sort the spans and number their steps."""
        spans = self.spans
        titles = {place: key for key, place in self.columns.lanes.items()}
        numbered = np.zeros(len(titles), dtype=np.int64)
        numbered[list(places)] = np.arange(len(places))
        start, end = np.frombuffer(spans.start), np.frombuffer(spans.end)
        lane = numbered[np.frombuffer(spans.lane, dtype=np.int32)]
        cause = np.frombuffer(spans.cause, dtype=np.int64)
        step = _steps(start, cause, marks)
        order = np.lexsort((end, start, lane))
        order = order[step[order] >= 0]
        if not len(order):
            raise RequestError(f"no operator of {self.path} is within its ProfilerStep marks; was the trace cut?")
        position = np.full(len(start) + 1, -1, dtype=np.int64)
        position[order] = np.arange(len(order))

        def column(values: Any, kind: type) -> Integers:
            return np.frombuffer(values, dtype=kind)[order].astype(np.int64)

        gradients = np.array(sorted(ready)).reshape(-1, 2)
        return RankTrace(
            rank=self.rank,
            host=str(self.columns.header.get("host_name", ""))[:80],
            source=str(self.path),
            version=f"Kineto schema {self.columns.header.get('schemaVersion', 'unknown')}",
            lanes=tuple(f"{Place(places[one]).name.lower()} {titles[one][1]}" for one in places),
            places=tuple(places.values()),
            names=tuple(self.names),
            start_s=start[order] * 1e-6,
            end_s=end[order] * 1e-6,
            lane=lane[order],
            name=column(spans.name, np.int32),
            kind=column(spans.kind, np.int8),
            phase=column(spans.phase, np.int8),
            step=step[order],
            cause=position[cause[order]],
            synced=np.frombuffer(spans.synced, dtype=np.int8)[order].astype(np.bool_),
            variant=column(spans.variant, np.int32),
            variants=tuple(self.columns.variants),
            messages={int(position[span]): message for span, message in spans.messages.items() if position[span] >= 0},
            groups=self.groups,
            world=self.world,
            marked=bool(len(marks)),
            gradient_s=gradients[:, 0] * 1e-6,
            gradient_bytes=gradients[:, 1],
        )


def _steps(start: Floats, cause: Integers, marks: Floats) -> Integers:
    """Return the step of every span by its start, of a launched span by its launch; -1 outside of all marks."""
    if not len(marks):
        return np.zeros(len(start), dtype=np.int64)
    moment = start.copy()
    launched = cause >= 0
    moment[launched] = start[cause[launched]]
    step = np.searchsorted(marks[:, 0], moment, side="right") - 1
    step[moment > marks[-1, 1]] = -1
    return step.astype(np.int64)


def _base_us(columns: Columns) -> int:
    """Return the origin of the file's times: 0 for early versions of Kineto."""
    base = columns.header.get("baseTimeNanoseconds", 0)
    return base // 1000 if isinstance(base, int) and abs(base) < 2**63 else 0


def _place(columns: Columns, path: Path) -> tuple[int, int, tuple[tuple[int, ...], ...]]:
    """Return rank, number of ranks and process groups; the rank also from a name like ``rank3.json``, otherwise -1."""
    info = columns.header.get("distributedInfo")
    if isinstance(info, dict) and whole(info.get("rank")) >= 0:
        return whole(info.get("rank")), max(whole(info.get("world_size")), 0), _groups(info)
    match = re.search(r"rank[-_.]?(\d{1,6})", path.name)
    return (int(match.group(1)) if match else -1), 0, ()


def _groups(info: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(dict.fromkeys(ranks for ranks in _configured(info).values() if len(ranks) > 1))


def _pg_ranks(columns: Columns) -> dict[str, tuple[int, ...]]:
    """Return the ranks of every process group in the header."""
    info = columns.header.get("distributedInfo")
    return _configured(info) if isinstance(info, dict) else {}


def _configured(info: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of the process groups of a header; PyTorch writes none for the default group of all ranks."""
    config, world, known = info.get("pg_config"), whole(info.get("world_size")), {}
    for one in config if isinstance(config, list) else ():
        if not isinstance(one, dict):
            continue
        ranks = numbers(one.get("ranks"))
        if ranks is None and one.get("ranks") == [] and 0 < world <= MOST_RANKS:
            ranks = tuple(range(world))
        if ranks is not None:
            known[str(one.get("pg_name", ""))] = ranks
    return known


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
