"""From the columns of a PyTorch profiler file to the spans of one rank.

Threads of the host become lanes of their outermost operators, cut where something is launched, so that a kernel or a
message waits for no more of its operator than came before it. A call that waits for the device is cut out: what it
waited for is found again from the order of events. Where kernels ran, the host only drives them.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forerun.simulator.replay.readers.json_stream import Progress
from forerun.simulator.replay.readers.kineto_events import Columns, Sort, read_columns
from forerun.simulator.replay.readers.sizes import dtype_bytes, elements
from forerun.simulator.replay.trace import LATE, LEAST_S, Floats, Integers, Kind, Message, Phase, Place, RankTrace
from forerun.spaces.errors import RequestError

_OPERATIONS = {
    "allreduce": "all_reduce",
    "allreducecoalesced": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensorcoalesced": "all_gather",
    "allgatherinto": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallbase": "all_to_all",
    "alltoallv": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv": "receive",
    "recvanysource": "receive",
}
"""Names of collectives in lower case without marks, as gloo, c10d and NCCL's arguments spell them."""
_ALIGNED = 1e-6
"""Seconds by which a nested event may stick out of the one around it: the clock's step."""


def operation_of(text: str) -> str | None:
    """Return forerun's word for a collective, None for anything else (as ``gloo:all_reduce`` or ``c10d::recv_``)."""
    return _OPERATIONS.get(re.sub(r"[^a-z]", "", text.split(":")[-1].lower()))


def read_kineto(path: Path, progress: Progress | None = None) -> tuple[RankTrace, int]:
    """Return the rank of one file and the moment that its times count from, in microseconds of its clock.

    Raises:
        RequestError: the file is no whole trace of one rank.
    """
    columns = read_columns(path, progress)
    if not len(columns):
        raise RequestError(
            f"a trace has operators or kernels, but {path} has {columns.events:,} events and none of them; export it "
            "with torch.profiler from the steps that train"
        )
    return _Reduction(columns, path).run()


@dataclass(slots=True)
class _Spans:
    """Growing spans of one rank; times in microseconds. ``synced`` has entries for the host's only, which come
    first."""

    start: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    lane: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    phase: list[int] = field(default_factory=list)
    cause: list[int] = field(default_factory=list)
    variant: list[int] = field(default_factory=list)
    synced: list[bool] = field(default_factory=list)
    messages: dict[int, Message] = field(default_factory=dict)

    def add(self, start: float, end: float, lane: int, name: int, kind: int, phase: int, variant: int) -> int:
        self.start.append(start)
        self.end.append(end)
        self.lane.append(lane)
        self.name.append(name)
        self.kind.append(kind)
        self.phase.append(phase)
        self.cause.append(-1)
        self.variant.append(variant)
        return len(self.start) - 1


class _Reduction:
    """Reduces one file; event numbers refer to the columns, span numbers to what is made of them."""

    def __init__(self, columns: Columns, path: Path) -> None:
        self.columns, self.path = columns, path
        origin = int(min(columns.start_us))
        self.base = origin + _base_us(columns)
        self.start: Floats = np.frombuffer(columns.start_us, dtype=np.float64) - origin
        self.end: Floats = self.start + np.frombuffer(columns.duration_us, dtype=np.float64)
        self.sort = np.frombuffer(columns.sort, dtype=np.int8)
        self.lane: Integers = np.array(columns.lane, dtype=np.int64)
        self.names = list(columns.names)
        self.rank, self.world, self.groups = _place(columns, path)
        self.pg_ranks = _pg_ranks(columns)
        self.spans = _Spans()
        self.piece_of: dict[int, int] = {}
        self.of_correlation: dict[int, int] = {}
        self.ready: list[tuple[float, float, int]] = []
        self.message_ends: list[float] | None = None

    def run(self) -> tuple[RankTrace, int]:
        """Return the trace and its origin."""
        device = bool(np.isin(self.sort, (Sort.KERNEL, Sort.COPY)).any())
        host = np.isin(self.sort, (Sort.OPERATOR, Sort.ISSUE, Sort.LAUNCH, Sort.SYNC))
        if not device:
            host &= ~np.isin(self.sort, (Sort.LAUNCH, Sort.SYNC))
        optimizer = self._intervals(Sort.OPTIMIZER)
        lanes = sorted(set(self.lane[host].tolist()), key=lambda lane: float(self.start[host & (self.lane == lane)][0]))
        places = {lane: Place.HOST for lane in lanes}
        for lane in lanes:
            self._host_lane(
                np.flatnonzero(host & (self.lane == lane)), Kind.HOST if device else Kind.COMPUTE, optimizer
            )
        self._device(places)
        self._messages(places)
        return self._trace(places), self.base

    def _intervals(self, sort: Sort) -> list[tuple[float, float]]:
        chosen = np.flatnonzero(self.sort == sort)
        return sorted(zip(self.start[chosen].tolist(), self.end[chosen].tolist(), strict=True))

    def _host_lane(self, events: Integers, kind: Kind, optimizer: list[tuple[float, float]]) -> None:
        """Add the outermost events of a thread, cut behind every launch and around every wait for the device."""
        order = events[np.lexsort((-self.end[events], self.start[events]))].tolist()
        outer: list[int] = []
        cuts: list[tuple[float, float, int]] = []
        reached = -1.0
        for event in order:
            if self.sort[event] in (Sort.LAUNCH, Sort.ISSUE, Sort.SYNC):
                cuts.append((float(self.start[event]), float(self.end[event]), event))
            if "AccumulateGrad" in self.names[self.columns.name[event]]:
                self._gradient(event)
            if self.start[event] >= reached - _ALIGNED:
                outer.append(event)
                reached = float(self.end[event])
        place = 0
        begins = [low for low, _ in optimizer]
        starts = [float(self.start[event]) for event in order]
        phase = Phase.FORWARD
        for event in outer:
            low, high, name = float(self.start[event]), float(self.end[event]), self.columns.name[event]
            if self.sort[event] == Sort.OPERATOR:  # a call between operators belongs to the part that it is made in
                phase = _phase(self.names[name], low, optimizer, begins)
            # Pieces of an operator are not compared with each other: shapes are those of the whole.
            whole = place >= len(cuts) or cuts[place][0] >= high
            shapes = (
                self.columns.variant[event]
                if whole
                else self.columns.variants.setdefault("", len(self.columns.variants))
            )
            arguments = (int(self.lane[event]), name, kind, phase, shapes)
            synced = False
            while place < len(cuts) and cuts[place][0] < high:
                begin, end, cut = cuts[place]
                place += 1
                piece = self.spans.add(low, max(begin, low), *arguments)
                self.spans.synced.append(synced)
                self.piece_of[cut] = piece
                if self.columns.correlation[cut] >= 0:
                    self.of_correlation[self.columns.correlation[cut]] = cut
                synced = bool(self.sort[cut] == Sort.SYNC)
                low = max(min(end, high) if synced else begin, low)
                if self.sort[cut] == Sort.ISSUE:
                    waited = self._waited(
                        end, min(starts[bisect_right(starts, end)], high) if starts[-1] > end else high
                    )
                    if waited > end:
                        self.spans.add(low, end, *arguments)
                        self.spans.synced.append(False)
                        low = waited
            self.spans.add(low, high, *arguments)
            self.spans.synced.append(synced)

    def _waited(self, low: float, high: float) -> float:
        """Return when a thread that does nothing from ``low`` to ``high`` was let go on by a message; ``low`` if by
        none.

        A call that asks for a message and returns when it is done (``dist.all_reduce`` within an operator) shows so.
        """
        if high - low < LEAST_S * 1e6:
            return low
        if self.message_ends is None:
            self.message_ends = sorted(self.end[self.sort == Sort.MESSAGE].tolist())
        last = bisect_right(self.message_ends, high) - 1
        if last >= 0 and self.message_ends[last] > low:
            return self.message_ends[last]
        # The host may note the end of a message late: it is then just behind the wait.
        late = last + 1 < len(self.message_ends) and self.message_ends[last + 1] - high < LATE * (high - low)
        return high if late else low

    def _gradient(self, event: int) -> None:
        """Note a gradient that became ready; its size where shapes were recorded."""
        arguments = self.columns.arguments.get(event, {})
        count, width = elements(arguments.get("Input Dims")), dtype_bytes(arguments.get("Input type"))
        if self.names[self.columns.name[event]] == "torch::autograd::AccumulateGrad" and count and width:
            self.ready.append((float(self.end[event]), count * width, event))

    def _device(self, places: dict[int, Place]) -> None:
        """Add kernels and copies, each behind its launch."""
        chosen = np.flatnonzero(np.isin(self.sort, (Sort.KERNEL, Sort.COPY)))
        for event in chosen.tolist():
            name = self.columns.name[event]
            message = self._device_message(event) if self.sort[event] == Sort.KERNEL else None
            kind = Kind.COPY if self.sort[event] == Sort.COPY else Kind.COMPUTE
            if message is not None:
                kind = {"send": Kind.SEND, "receive": Kind.RECEIVE}.get(message.operation, Kind.COLLECTIVE)
            cut = self.of_correlation.get(self.columns.correlation[event], -1)
            piece = self.piece_of.get(cut, -1)
            phase = self.spans.phase[piece] if piece >= 0 else Phase.OTHER
            lane = int(self.lane[event])
            places.setdefault(lane, Place.DEVICE)
            low, high = float(self.start[event]), float(self.end[event])
            span = self.spans.add(low, high, lane, name, kind, phase, self.columns.variant[event])
            self.spans.cause[span] = piece
            if message is not None:
                self.spans.messages[span] = message

    def _device_message(self, event: int) -> Message | None:
        """Return what an NCCL (RCCL) kernel exchanges, None for other kernels."""
        name = self.names[self.columns.name[event]]
        if "nccl" not in name.lower():
            return None
        own = self.columns.arguments.get(event, {})
        arguments = {**self.columns.external.get(_whole(own.get("External id")), {}), **own}
        operation = operation_of(str(arguments.get("Collective name", "")).lstrip("_"))
        if operation is None:
            found = re.search(r"(AllReduce|AllGather|ReduceScatter|Broadcast|AllToAll|Reduce)", name)
            operation = operation_of(found.group(1)) if found else None
        if operation is None:
            raise RequestError(
                f"an NCCL kernel names its collective, but {name[:60]!r} in {self.path} does not; profile with PyTorch "
                "2.2 or later, which writes the arguments of collectives"
            )
        width = dtype_bytes(arguments.get("dtype")) or float("nan")
        sides = [_whole(arguments.get(key)) for key in ("In msg nelems", "Out msg nelems")]
        label = str(arguments.get("Process Group Name", ""))[:80]
        return Message(
            operation=operation,
            size_bytes=max(sides) * width if max(sides) >= 0 else float("nan"),
            ranks=self._ranks(arguments, operation, label),
            label=label,
        )

    def _ranks(self, arguments: dict[str, Any], operation: str, label: str) -> tuple[int, ...] | None:
        """Return who takes part, by the arguments or by the name of the process group."""
        group = _numbers(arguments.get("Process Group Ranks")) or self.pg_ranks.get(label)
        if operation in ("send", "receive"):
            peer = _whole(arguments.get("Dst Rank" if operation == "send" else "Src Rank"))
            if peer < 0:
                return None
            return (self.rank, peer) if operation == "send" else (peer, self.rank)
        return group

    def _messages(self, places: dict[int, Place]) -> None:
        """Add what gloo exchanged, each behind the call that asked for it."""
        chosen = np.flatnonzero(self.sort == Sort.MESSAGE)
        chosen = chosen[np.argsort(self.start[chosen], kind="stable")]
        asked: dict[str, list[int]] = {}
        issues = np.flatnonzero(self.sort == Sort.ISSUE)
        for event in issues[np.argsort(self.start[issues], kind="stable")].tolist():
            operation = operation_of(self.names[self.columns.name[event]])
            if operation is not None:
                asked.setdefault(operation, []).append(event)
        for event in chosen.tolist():
            name = self.columns.name[event]
            operation = operation_of(self.names[name])
            if operation is None:
                continue
            lane = int(self.lane[event])
            if places.get(lane) != Place.NETWORK:
                lane = self._network_lane(lane, places)
            kind = {"send": Kind.SEND, "receive": Kind.RECEIVE}.get(operation, Kind.COLLECTIVE)
            waiting = asked.get(operation, [])
            issue = waiting.pop(0) if waiting and self.start[waiting[0]] <= self.start[event] + 50.0 else -1
            piece = self.piece_of.get(issue, -1)
            phase = self.spans.phase[piece] if piece >= 0 else Phase.OTHER
            low, high = float(self.start[event]), float(self.end[event])
            span = self.spans.add(low, high, lane, name, kind, phase, self.columns.variant[event])
            self.spans.cause[span] = piece
            self.spans.messages[span] = self._host_message(event, issue, operation)

    def _network_lane(self, lane: int, places: dict[int, Place]) -> int:
        """Return the lane for messages that a thread of operators reports: one of its own."""
        if lane not in places:
            places[lane] = Place.NETWORK
            return lane
        key = ("network", str(lane))
        number = self.columns.lanes.setdefault(key, len(self.columns.lanes))
        places[number] = Place.NETWORK
        return number

    def _host_message(self, event: int, issue: int, operation: str) -> Message:
        own, asking = self.columns.arguments.get(event, {}), self.columns.arguments.get(issue, {})
        size = float("nan")
        for arguments in (own, asking):
            count, width = elements(arguments.get("Input Dims")), dtype_bytes(arguments.get("Input type"))
            if count and width and not size == size:
                size = count * width
        ranks = None
        if operation in ("send", "receive"):
            inputs = asking.get("Concrete Inputs")
            numbers = [_whole(_number(text)) for text in inputs] if isinstance(inputs, list) else []
            numbers = [number for number in numbers if number >= 0]
            if numbers:
                ranks = (self.rank, numbers[0]) if operation == "send" else (numbers[0], self.rank)
        return Message(operation=operation, size_bytes=size, ranks=ranks)

    def _trace(self, places: dict[int, Place]) -> RankTrace:
        """Put the spans in order and number their steps."""
        spans, numbers = self.spans, {lane: place for place, lane in enumerate(places)}
        start, end = np.array(spans.start), np.array(spans.end)
        lane = np.array([numbers[one] for one in spans.lane], dtype=np.int64)
        cause = np.array(spans.cause, dtype=np.int64)
        step = _steps(start, cause, self._intervals(Sort.STEP))
        order = np.lexsort((end, start, lane))
        order = order[step[order] >= 0]
        if not len(order):
            raise RequestError(f"no operator of {self.path} lies within its ProfilerStep marks; was the trace cut?")
        back = np.full(len(start) + 1, -1, dtype=np.int64)
        back[order] = np.arange(len(order))
        synced = np.zeros(len(start), dtype=bool)
        synced[: len(spans.synced)] = spans.synced
        ready = [one for one in sorted(self.ready) if self.piece_near(one[0], start, end) >= 0]
        titles = {place: key for key, place in self.columns.lanes.items()}
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
            name=np.array(spans.name, dtype=np.int64)[order],
            kind=np.array(spans.kind, dtype=np.int64)[order],
            phase=np.array(spans.phase, dtype=np.int64)[order],
            step=step[order],
            cause=back[cause[order]],
            synced=synced[order],
            variant=np.array(spans.variant, dtype=np.int64)[order],
            variants=tuple(self.columns.variants),
            messages={int(back[span]): message for span, message in spans.messages.items() if back[span] >= 0},
            groups=self.groups,
            world=self.world,
            gradient_s=np.array([one[0] for one in ready]) * 1e-6,
            gradient_bytes=np.array([one[1] for one in ready]),
        )

    def piece_near(self, moment: float, start: Floats, end: Floats) -> int:
        """Return 0 where a moment lies within the trace, -1 elsewhere."""
        return 0 if len(start) and start.min() <= moment <= end.max() else -1


def _steps(start: Floats, cause: Integers, marks: list[tuple[float, float]]) -> Integers:
    """Return the step of every span by its start, of a launched one by its launch's; -1 outside of all marks."""
    if not marks:
        return np.zeros(len(start), dtype=np.int64)
    begins = np.array([low for low, _ in marks])
    moment = start.copy()
    launched = cause >= 0
    moment[launched] = start[cause[launched]]
    step = np.searchsorted(begins, moment, side="right") - 1
    step[moment > marks[-1][1]] = -1
    return step.astype(np.int64)


def _phase(name: str, start: float, optimizer: Sequence[tuple[float, float]], begins: list[float]) -> Phase:
    if name.startswith("autograd::engine") or "Backward" in name or "AccumulateGrad" in name:
        return Phase.BACKWARD
    place = bisect_left(begins, start + 1e-3) - 1
    return Phase.OPTIMIZER if place >= 0 and start <= optimizer[place][1] else Phase.FORWARD


def _base_us(columns: Columns) -> int:
    """Return the moment that the file's times count from: 0 before Kineto wrote it."""
    base = columns.header.get("baseTimeNanoseconds", 0)
    return base // 1000 if isinstance(base, int) and abs(base) < 2**63 else 0


def _place(columns: Columns, path: Path) -> tuple[int, int, tuple[tuple[int, ...], ...]]:
    """Return rank, number of ranks and process groups; the rank also from a name as ``rank3.json``, else -1."""
    info = columns.header.get("distributedInfo")
    if isinstance(info, dict) and _whole(info.get("rank")) >= 0:
        return _whole(info.get("rank")), max(_whole(info.get("world_size")), 0), _groups(info)
    found = re.search(r"rank[-_.]?(\d{1,6})", path.name)
    return (int(found.group(1)) if found else -1), 0, ()


def _groups(info: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
    config = info.get("pg_config")
    found = [_numbers(one.get("ranks")) for one in config if isinstance(one, dict)] if isinstance(config, list) else []
    return tuple(dict.fromkeys(ranks for ranks in found if ranks is not None and len(ranks) > 1))


def _pg_ranks(columns: Columns) -> dict[str, tuple[int, ...]]:
    """Return the ranks of every process group that the header names."""
    info = columns.header.get("distributedInfo")
    config = info.get("pg_config") if isinstance(info, dict) else None
    known = {}
    for one in config if isinstance(config, list) else ():
        ranks = _numbers(one.get("ranks")) if isinstance(one, dict) else None
        if ranks is not None:
            known[str(one.get("pg_name", ""))] = ranks
    return known


def _numbers(value: Any) -> tuple[int, ...] | None:
    """Return a list of ranks, also from text as ``[0, 1]``; None where it is missing or shortened."""
    if isinstance(value, str) and re.fullmatch(r"\[\s*\d{1,7}(\s*,\s*\d{1,7})*\s*\]", value):
        value = [int(word) for word in re.findall(r"\d+", value)]
    if not isinstance(value, list) or not value or not all(_whole(one) >= 0 for one in value):
        return None
    return tuple(sorted(set(value)))


def _number(text: Any) -> int:
    return int(text) if isinstance(text, str) and re.fullmatch(r"\d{1,7}", text) else -1


def _whole(value: Any) -> int:
    """Return a whole number, -1 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else -1
