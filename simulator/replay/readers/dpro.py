"""Event files in the format of dPRO: one JSON of complete events for any number of ranks.

``name``: ``FW.conv1``, ``BW.conv1``, ``Comm.12.SEND``, ``UPDATE_0``, ``I/O_0``; ``pid``: ``host0.rank1``; ``ts``,
``dur`` in microseconds; ``args``: ``step``, ``cnt`` (which occurrence), ``name`` with a suffix
``~>loop_channel_chunk_slice`` that tells the pieces of a message apart. A SEND goes to the next rank of the ring,
unless ``args.peer`` says otherwise.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

from forerun.simulator.replay.readers.json_stream import JsonStream, Progress
from forerun.simulator.replay.trace import Integers, Place, RankTrace, SpanKind, SpanMessage, SpanPhase
from forerun.spaces.errors import RequestError

_PID = re.compile(r"(?P<host>[^.\s]{1,60})\.rank(?P<rank>\d{1,6})")
_NAME = re.compile(r"(?P<category>FW|BW|Comm|UPDATE_|I/O_)\.?(?P<rest>.{0,180})", re.DOTALL)
_PHASES = {"FW": SpanPhase.FORWARD, "BW": SpanPhase.BACKWARD, "UPDATE_": SpanPhase.OPTIMIZER, "I/O_": SpanPhase.OTHER}
_LANES = ("computation", "input", "communication")
_MOST_EVENTS = 50_000_000


def is_dpro(event: Any) -> bool:
    """Whether an event is one of dPRO's."""
    return isinstance(event, dict) and isinstance(event.get("pid"), str) and bool(_PID.fullmatch(event["pid"]))


def read_dpro(path: Path, progress: Progress | None = None) -> list[tuple[RankTrace, int]]:
    """Return all ranks of one file.

    Raises:
        RequestError: the file is torn or empty, or an event lacks a time, a rank or a name that the format knows.
    """
    ranks: dict[int, _Rank] = {}
    count = 0
    for event in JsonStream(path, progress).items("traceEvents"):
        if not isinstance(event, dict) or event.get("ph", "X") != "X":
            continue
        count += 1
        if count > _MOST_EVENTS:
            raise RequestError(f"{path} has more than {_MOST_EVENTS:,} events; trace fewer steps")
        place = _PID.fullmatch(str(event.get("pid")))
        name = _NAME.match(str(event.get("name")))
        if place is None or name is None:
            raise RequestError(
                "an event of a dPRO file has a pid as host0.rank1 and a name that starts with FW, BW, Comm, UPDATE_ or "
                f"I/O_, but {path} has pid={event.get('pid')!r:.40}, name={event.get('name')!r:.60}"
            )
        number = int(place["rank"])
        ranks.setdefault(number, _Rank(number, place["host"], str(path))).take(event, name)
    if not ranks:
        raise RequestError(f"{path} holds no events; was the profiler stopped before it wrote its trace?")
    for rank in ranks.values():
        rank.world = len(ranks)
    return [ranks[number].trace() for number in sorted(ranks)]


class _Rank:
    """Growing spans of one rank."""

    def __init__(self, rank: int, host: str, source: str) -> None:
        self.rank, self.host, self.source, self.world = rank, host, source, 0
        self.rows: list[tuple[int, float, float, int, int, int, int]] = []
        self.names: dict[str, int] = {}
        self.lanes: dict[str, int] = {}
        self.messages: list[SpanMessage | None] = []

    def take(self, event: dict[str, Any], name: re.Match[str]) -> None:
        """Add one event."""
        start, duration = event.get("ts"), event.get("dur", 0)
        for value in (start, duration):
            if not isinstance(value, int | float) or not abs(value) < 1e18:
                raise RequestError(
                    f"{self.source}: {event.get('name')!r:.60} has ts={start!r:.40}, dur={duration!r:.40}"
                )
        arguments = event.get("args") if isinstance(event.get("args"), dict) else {}
        assert isinstance(arguments, dict) and isinstance(start, int | float)
        step = arguments.get("step", arguments.get("cnt", 0))
        kind, message = SpanKind.COMPUTE, None
        lane = _LANES[name["category"] == "I/O_"]
        if name["category"] == "Comm":
            lane = f"{_LANES[2]} {event.get('tid', '')}"[:60]
            kind, message = self._message(name["rest"], arguments)
        self.rows.append(
            (
                self.lanes.setdefault(lane, len(self.lanes)),
                float(start),
                float(start) + max(float(duration), 0.0),
                self.names.setdefault(str(event.get("name"))[:200], len(self.names)),
                kind,
                _PHASES.get(name["category"], SpanPhase.BACKWARD),
                step if isinstance(step, int) and 0 <= step < 10**9 else 0,
            )
        )
        self.messages.append(message)

    def _message(self, rest: str, arguments: dict[str, Any]) -> tuple[SpanKind, SpanMessage | None]:
        """Return what a communication event is: only SEND and RECV have a partner."""
        tensor, _, operation = rest.rpartition(".")
        _, _, suffix = str(arguments.get("name", "")).rpartition("~>")
        label = f"{tensor} {suffix or arguments.get('chunkId', '')}"[:120]
        size = arguments.get("size", float("nan"))
        size = float(size) if isinstance(size, int | float) and size >= 0 else float("nan")
        peer = arguments.get("peer")
        peer = peer if isinstance(peer, int) and peer >= 0 else None
        if operation == "SEND":
            return SpanKind.SEND, SpanMessage(
                operation="send", size_bytes=size, ranks=(self.rank, _known(peer)), label=label
            )
        if operation in ("RECV", "REC"):
            return SpanKind.RECEIVE, SpanMessage(
                operation="receive", size_bytes=size, ranks=(_known(peer), self.rank), label=label
            )
        return SpanKind.COPY, None

    def trace(self) -> tuple[RankTrace, int]:
        """Return the trace and its origin in microseconds."""
        origin = int(min(row[1] for row in self.rows))
        order = sorted(range(len(self.rows)), key=lambda place: self.rows[place][:3])
        columns = [np.array([self.rows[place][part] for place in order]) for part in range(7)]
        numbers = np.unique(columns[6])
        messages = {}
        for place, row in enumerate(order):
            message = self.messages[row]
            if message is not None:
                source, target = message.ranks or (-1, -1)
                source = (self.rank - 1) % self.world if source < 0 else source
                target = (self.rank + 1) % self.world if target < 0 else target
                messages[place] = SpanMessage(
                    operation=message.operation,
                    size_bytes=message.size_bytes,
                    ranks=(source, target),
                    label=message.label,
                )
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
            cause=_causes(start, end, kind),
            synced=np.zeros(len(order), dtype=bool),
            variant=np.zeros(len(order), dtype=np.int64),
            variants=("",),
            messages=messages,
            world=self.world,
        ), origin


def _known(peer: int | None) -> int:
    return -1 if peer is None else peer


def _causes(start: "np.ndarray[Any, Any]", end: "np.ndarray[Any, Any]", kind: Integers) -> Integers:
    """Return for every communication event the last operator that ended before it: the file names no producer."""
    cause = np.full(len(start), -1, dtype=np.int64)
    computing = np.flatnonzero(kind == SpanKind.COMPUTE)
    if not len(computing):
        return cause
    computing = computing[np.argsort(end[computing], kind="stable")]
    others = np.flatnonzero(kind != SpanKind.COMPUTE)
    place = np.searchsorted(end[computing], start[others] + 1e-9, side="right") - 1
    cause[others[place >= 0]] = computing[place[place >= 0]]
    return cause
