"""Event files in the format of dPRO: one JSON of complete events for any number of ranks.

``name``: ``FW.conv1``, ``BW.conv1``, ``Comm.12.SEND``, ``UPDATE_0``, ``I/O_0``; ``pid``: ``host0.rank1``; ``ts``,
``dur`` in microseconds; ``args``: ``step``, ``cnt`` (number of the occurrence), ``name`` with a suffix
``~>loop_channel_chunk_slice`` that distinguishes the pieces of a message. A SEND goes to the next rank of its channel's
ring according to NCCL's log in the same folder (``rings``), otherwise to the next rank, unless ``args.peer`` is given.

Stages of one tensor (``_STAGES``) follow each other. In Horovod, the negotiation is an exchange of all ranks, and so is
the reduction unless SEND and RECV describe it. In BytePS, a pull starts at the end of its push and ends after the
pushes of all workers, which is also an exchange of all ranks. Work of servers (``pid``: ``server_0``) is part of it.

NCCL's log (``NCCL_DEBUG=INFO``) has the next rank of every rank on every channel in two kinds of lines: ``Channel 00/02
: 0 2 1 3`` lists all ranks in order, ``Ring 00 : 3 -> 0 -> 2`` the neighbours of one rank.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from forerun.simulator.replay.readers.json_stream import JsonStream, Progress, is_moment
from forerun.simulator.replay.readers.texts import number_of
from forerun.simulator.replay.trace import Floats, Integers, Place, RankTrace, SpanKind, SpanMessage, SpanPhase
from forerun.spaces.errors import RequestError
from forerun.spaces.reading import opened
from forerun.spaces.units import whole_number

_CHANNEL = re.compile(r"NCCL INFO Channel (\d{1,3})/\d{1,3} ?: +(\d{1,6}(?: +\d{1,6})*)\s*$")
_RING = re.compile(r"NCCL INFO Ring (\d{1,3}) ?: (\d{1,6}) -> (\d{1,6}) -> (\d{1,6})")
_MOST_LINES = 10_000_000

Rings = Mapping[int, Mapping[int, int]]
"""Next rank of every rank, by channel."""


def rings_beside(trace: Path) -> Rings:
    """Return the rings in the logs in the folder of a trace, named like ``nccl.log`` or ``nccl-host0.txt``.

    Raises:
        RequestError: a log cannot be read, or two lines contradict each other.
    """
    logs = sorted({*trace.parent.glob("nccl*.log"), *trace.parent.glob("nccl*.txt")})
    rings: dict[int, dict[int, int]] = {}
    for log in logs:
        with opened(log) as stream:
            for number, line in enumerate(stream):
                if number > _MOST_LINES:
                    raise RequestError(
                        f"{log} has more than {_MOST_LINES:,} lines; keep those that begin a communicator"
                    )
                _read(line.decode("utf-8", "replace"), rings, f"{log}:{number + 1}")
    return rings


def _read(line: str, rings: dict[int, dict[int, int]], where: str) -> None:
    match = _CHANNEL.search(line)
    if match is not None:
        ranks = [int(rank) for rank in match[2].split()]
        pairs = list(zip(ranks, (*ranks[1:], ranks[0]), strict=True))
    else:
        match = _RING.search(line)
        if match is None:
            return
        before, rank, after = int(match[2]), int(match[3]), int(match[4])
        pairs = [(before, rank), (rank, after)]
    ring = rings.setdefault(int(match[1]), {})
    for rank, following in pairs:
        if ring.setdefault(rank, following) != following:
            raise RequestError(
                f"{where}: rank {rank} sends to {following} here and to {ring[rank]} before; keep the log of one "
                "communicator"
            )


_PID = re.compile(r"(?P<host>[^.\s]{1,60})\.rank(?P<rank>\d{1,6})")
_SERVER = re.compile(r"(?:[^.\s]{1,60}\.)?server[._]?\d{1,6}")
_NAME = re.compile(r"(?P<category>FW|BW|Comm|UPDATE_|I/O_)\.?(?P<rest>.{0,180})", re.DOTALL)
_PHASES = {"FW": SpanPhase.FORWARD, "BW": SpanPhase.BACKWARD, "UPDATE_": SpanPhase.OPTIMIZER, "I/O_": SpanPhase.OTHER}
_LANES = ("computation", "input", "communication")
_MOST_EVENTS = 50_000_000
_ROUNDED_US = 1e-3
"""Microseconds by which the end of one event may be later than the start of the next."""
_WAITS = frozenset({"QUEUE", "PULL_REQ", "PULL"})
"""Stages in which a tensor only waits for others; a PULL without a PULL_RES is the pull itself."""
_STAGES = {
    "SEND": (SpanKind.SEND, "send"),
    "RECV": (SpanKind.RECEIVE, "receive"),
    "REC": (SpanKind.RECEIVE, "receive"),
    "Sync": (SpanKind.COLLECTIVE, "barrier"),
    "NEGOTIATE_ALLREDUCE": (SpanKind.COLLECTIVE, "barrier"),
    "ALLREDUCE": (SpanKind.COLLECTIVE, "all_reduce"),
    "NCCL_ALLREDUCE": (SpanKind.COLLECTIVE, "all_reduce"),
    "MPI_ALLREDUCE": (SpanKind.COLLECTIVE, "all_reduce"),
    "GLOO_ALLREDUCE": (SpanKind.COLLECTIVE, "all_reduce"),
    "PULL": (SpanKind.COLLECTIVE, "push_pull"),
    "PULL_RES": (SpanKind.COLLECTIVE, "push_pull"),
}
"""Stages of a tensor with more than one rank; others are copies within a rank."""


def is_dpro(event: Any) -> bool:
    """Check whether an event is in dPRO's format."""
    return isinstance(event, dict) and isinstance(event.get("pid"), str) and bool(_PID.fullmatch(event["pid"]))


def read_dpro(path: Path, progress: Progress | None = None) -> list[tuple[RankTrace, int]]:
    """Return all ranks of one file.

    Raises:
        RequestError: the file is torn or empty, or an event lacks a time, a rank or a name that the format knows.
    """
    ranks: dict[int, _Rank] = {}
    rings, count = rings_beside(path), 0
    for event in JsonStream(path, progress).items("traceEvents"):
        if not isinstance(event, dict) or event.get("ph", "X") != "X":
            continue
        count += 1
        if count > _MOST_EVENTS:
            raise RequestError(f"{path} has more than {_MOST_EVENTS:,} events; trace fewer steps")
        if _SERVER.fullmatch(str(event.get("pid"))):
            continue
        place = _PID.fullmatch(str(event.get("pid")))
        name = _NAME.match(str(event.get("name")))
        if place is None or name is None:
            raise RequestError(
                "an event of a dPRO file has a pid as host0.rank1 and a name that starts with FW, BW, Comm, UPDATE_ or "
                f"I/O_, but {path} has pid={event.get('pid')!r:.40}, name={event.get('name')!r:.60}"
            )
        number = int(place["rank"])
        ranks.setdefault(number, _Rank(number, place["host"], str(path), rings)).take(event, name)
    if not ranks:
        raise RequestError(f"{path} has no events; was the profiler stopped before it wrote its trace?")
    for rank in ranks.values():
        rank.world = len(ranks)
    return [ranks[number].trace() for number in sorted(ranks)]


class _Rank:
    """Growing spans of one rank.

    ``rows``: (lane, start, end, name, kind, phase, step); ``stages``: for each row of a tensor's stage, its label with
    the step, and the stage.
    """

    def __init__(self, rank: int, host: str, source: str, rings: Rings) -> None:
        self.rank, self.host, self.source, self.world = rank, host, source, 0
        self.following = {channel: ring[rank] for channel, ring in rings.items() if rank in ring}
        self.preceding = {
            channel: next((one for one, other in ring.items() if other == rank), -1) for channel, ring in rings.items()
        }
        self.rows: list[tuple[int, float, float, int, int, int, int]] = []
        self.names: dict[str, int] = {}
        self.lanes: dict[str, int] = {}
        self.messages: list[SpanMessage | None] = []
        self.stages: list[tuple[str, str] | None] = []

    def take(self, event: dict[str, Any], name: re.Match[str]) -> None:
        """Add one event."""
        start, duration = event.get("ts"), event.get("dur", 0)
        if not is_moment(start) or not is_moment(duration) or duration < 0:
            raise RequestError(f"{self.source}: {event.get('name')!r:.60} has ts={start!r:.40}, dur={duration!r:.40}")
        arguments = event.get("args") if isinstance(event.get("args"), dict) else {}
        assert isinstance(arguments, dict)
        step = arguments.get("step", arguments.get("cnt", 0))
        step = step if isinstance(step, int) and 0 <= step < 10**9 else 0
        kind, message, stage = SpanKind.COMPUTE, None, None
        lane = _LANES[name["category"] == "I/O_"]
        if name["category"] == "Comm":
            lane = f"{_LANES[2]} {event.get('tid', '')}"[:60]
            kind, message = self._message(name["rest"], arguments)
            tensor, _, operation = name["rest"].rpartition(".")
            stage = (f"{step} {tensor}"[:120], operation)
        self.rows.append(
            (
                self.lanes.setdefault(lane, len(self.lanes)),
                float(start),
                float(start) + float(duration),
                number_of(self.names, str(event.get("name")), self.source),
                kind,
                _PHASES.get(name["category"], SpanPhase.BACKWARD),
                step,
            )
        )
        self.messages.append(message)
        self.stages.append(stage)

    def _message(self, rest: str, arguments: dict[str, Any]) -> tuple[SpanKind, SpanMessage | None]:
        """Return the kind of a stage and its message, with one other rank or with all."""
        tensor, _, operation = rest.rpartition(".")
        _, _, suffix = str(arguments.get("name", "")).rpartition("~>")
        kind, word = _STAGES.get(operation, (SpanKind.COPY, ""))
        size = arguments.get("size", float("nan"))
        size = size if isinstance(size, int | float) else float("nan")
        if kind == SpanKind.COPY:
            return kind, None
        if kind == SpanKind.COLLECTIVE:
            return kind, SpanMessage(operation=word, size_bytes=size, ranks=None, label=tensor[:120])
        label = f"{tensor} {suffix or arguments.get('chunkId', '')}"[:120]
        peer = arguments.get("peer")
        if not (isinstance(peer, int) and peer >= 0):
            _, _, rest = suffix.partition("_")
            ring = self.following if kind == SpanKind.SEND else self.preceding
            channel = whole_number(rest.partition("_")[0])
            peer = -1 if channel is None else ring.get(channel, -1)
        ranks = (self.rank, peer) if kind == SpanKind.SEND else (peer, self.rank)
        return kind, SpanMessage(operation=word, size_bytes=size, ranks=ranks, label=label)

    def _settled(self) -> list[int]:
        """Return the rows in use in order of their start; pulls start at the end of their pushes."""
        finer, pushed = set[str](), dict[str, float]()
        pulled = {stage[0] for stage in self.stages if stage is not None and stage[1] == "PULL_RES"}
        for row, stage in zip(self.rows, self.stages, strict=True):
            if stage is not None and stage[1] in ("SEND", "RECV", "REC"):
                finer.add(stage[0])
            elif stage is not None and stage[1].startswith("PUSH"):
                pushed[stage[0]] = max(pushed.get(stage[0], row[2]), row[2])
        kept = []
        for place, stage in enumerate(self.stages):
            if stage is not None:
                key, operation = stage
                if operation in _WAITS and (operation != "PULL" or key in pulled):
                    continue
                if key in finer and _STAGES.get(operation, (None, ""))[1] == "all_reduce":
                    continue  # described by its SEND and RECV
                if operation in ("PULL", "PULL_RES") and key in pushed:
                    lane, _, end, name, kind, phase, step = self.rows[place]
                    self.rows[place] = (lane, min(pushed[key], end), end, name, kind, phase, step)
            kept.append(place)
        return sorted(kept, key=lambda place: (self.rows[place][1], self.rows[place][2]))

    def _own_lanes(self, order: list[int]) -> None:
        """Move overlapping spans of a thread (a SEND and a RECV) to separate lanes, since a lane runs one span at a
        time.
        """
        names = list(self.lanes)
        reached: dict[int, list[tuple[int, float]]] = {}
        for place in order:
            lane, start, end, name, kind, phase, step = self.rows[place]
            lanes = reached.setdefault(lane, [(lane, -float("inf"))])
            free = next((number for number, (_, until) in enumerate(lanes) if until <= start + _ROUNDED_US), len(lanes))
            if free == len(lanes):
                title = f"{names[lane]} #{free + 1}"
                lanes.append((self.lanes.setdefault(title, len(self.lanes)), 0.0))
            lanes[free] = (lanes[free][0], end)
            self.rows[place] = (lanes[free][0], start, end, name, kind, phase, step)

    def trace(self) -> tuple[RankTrace, int]:
        """Return the trace and its origin in microseconds."""
        settled = self._settled()
        self._own_lanes(settled)
        origin = int(min(self.rows[place][1] for place in settled))
        order = sorted(settled, key=lambda place: self.rows[place][:3])
        columns = [np.array([self.rows[place][part] for place in order]) for part in range(7)]
        numbers = np.unique(columns[6])
        messages = {}
        for place, row in enumerate(order):
            message = self.messages[row]
            if message is not None and message.ranks is not None:
                source, target = message.ranks
                source = (self.rank - 1) % self.world if source < 0 else source
                target = (self.rank + 1) % self.world if target < 0 else target
                message = replace(message, ranks=(source, target))
            if message is not None:
                messages[place] = message
        places = tuple(Place.NETWORK if lane.startswith(_LANES[2]) else Place.HOST for lane in self.lanes)
        start, end = (columns[1] - origin) * 1e-6, (columns[2] - origin) * 1e-6
        lane, kind, phase = (columns[part].astype(np.int64) for part in (0, 4, 5))
        return RankTrace(
            rank=self.rank,
            host=self.host,
            source=self.source,
            version="dPRO events",
            lanes=tuple(self.lanes),
            places=places,
            names=tuple(self.names),
            start_s=start,
            end_s=end,
            lane=lane,
            name=columns[3].astype(np.int64),
            kind=kind,
            phase=phase,
            step=np.searchsorted(numbers, columns[6]).astype(np.int64),
            cause=_causes(start, end, kind, [self.stages[row] for row in order]),
            synced=np.zeros(len(order), dtype=bool),
            variant=np.zeros(len(order), dtype=np.int64),
            variants=("",),
            messages=messages,
            world=self.world,
        ), origin


def _causes(start: Floats, end: Floats, kind: Integers, stages: Sequence[tuple[str, str] | None]) -> Integers:
    """Return the cause of every communication event's start, since the file names no producer."""
    # The cause is the last ended operator before the event or the preceding stage of its tensor, whichever ended later.
    cause = np.full(len(start), -1, dtype=np.int64)
    computing = np.flatnonzero(kind == SpanKind.COMPUTE)
    computing = computing[np.argsort(end[computing], kind="stable")]
    others = np.flatnonzero(kind != SpanKind.COMPUTE)
    place = np.searchsorted(end[computing], start[others] + _ROUNDED_US * 1e-6, side="right") - 1
    cause[others[place >= 0]] = computing[place[place >= 0]]
    latest: dict[str, int] = {}
    for span in others[np.argsort(end[others], kind="stable")].tolist():
        stage = stages[span]
        if stage is None or kind[span] in (SpanKind.SEND, SpanKind.RECEIVE):
            continue
        before = latest.get(stage[0], -1)
        if before >= 0 and end[before] <= start[span] + _ROUNDED_US * 1e-6:
            cause[span] = before if cause[span] < 0 or end[before] >= end[cause[span]] else cause[span]
        latest[stage[0]] = span
    return cause
