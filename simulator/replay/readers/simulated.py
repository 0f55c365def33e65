"""Timelines of simulated steps written by forerun (``--trace``): a process per pipeline rank, a thread per stream.

The timelines contain no dependencies, but all starts and durations exactly, so a replay reproduces the step. Each
exchange belongs to its stage and has no partner on other stages.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

from forerun.simulator.events.engine.kinds import STREAMS
from forerun.simulator.replay.readers.json_stream import JsonStream, Progress, is_moment
from forerun.simulator.replay.trace import Place, RankTrace, SpanKind, SpanMessage, SpanPhase
from forerun.spaces.errors import RequestError

_KINDS = {
    "send": SpanKind.SEND,
    "gather": SpanKind.COLLECTIVE,
    "reduce": SpanKind.COLLECTIVE,
    "tied": SpanKind.COLLECTIVE,
    "exchange": SpanKind.COLLECTIVE,
    "copy": SpanKind.COPY,
}
_PHASES = {"forward": SpanPhase.FORWARD, "optimizer": SpanPhase.OPTIMIZER} | dict.fromkeys(
    ("backward", "input gradient", "weight gradient", "recompute"), SpanPhase.BACKWARD
)
_MOST_STAGES = 1 << 20
_OPERATIONS = {"gather": "all_gather", "send": "send"}


def is_simulated(event: Any) -> bool:
    """Check whether an event is the first of such a timeline: it names a stage as ``process_name``."""
    if not isinstance(event, dict) or event.get("ph") != "M" or event.get("name") != "process_name":
        return False
    named = event.get("args")
    return isinstance(named, dict) and re.match(r"(replica \d+ )?stage \d+", str(named.get("name"))) is not None


def read_simulated(path: Path, progress: Progress | None = None) -> list[tuple[RankTrace, int]]:
    """Return a rank for every process of one file, and the origin of their times (0).

    Raises:
        RequestError: the file is torn, or has no tasks.
    """
    spans: dict[int, list[tuple[int, float, float, str, str]]] = {}
    for event in JsonStream(path, progress).items("traceEvents"):
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        begin, took, stage, stream = (event.get(key) for key in ("ts", "dur", "pid", "tid"))
        numbered = _below(stage, _MOST_STAGES) and _below(stream, len(STREAMS))
        if not numbered or not is_moment(begin) or not is_moment(took) or took < 0:
            raise RequestError(
                f"a task of a timeline has pid (a stage), tid (0 to {len(STREAMS) - 1}), ts and dur (at least 0), but "
                f"{path} has {event!r:.200}"
            )
        assert isinstance(stage, int) and isinstance(stream, int)
        span = (stream, begin * 1e-6, begin * 1e-6 + took * 1e-6, str(event.get("name")), str(event.get("cat", "")))
        spans.setdefault(stage, []).append(span)
    if not spans:
        raise RequestError(f"{path} has no tasks; was the timeline written to its end?")
    return [(_rank(path, stage, stage_spans), 0) for stage, stage_spans in sorted(spans.items())]


def _below(value: Any, count: int) -> bool:
    return isinstance(value, int) and 0 <= value < count


def _rank(path: Path, stage: int, spans: list[tuple[int, float, float, str, str]]) -> RankTrace:
    spans = sorted(spans)
    names = {name: number for number, name in enumerate(dict.fromkeys(span[3] for span in spans))}
    kinds = [_KINDS.get(span[4], SpanKind.COMPUTE) for span in spans]
    count = len(spans)
    return RankTrace(
        rank=stage,
        host="",
        source=str(path),
        version="forerun timeline",
        lanes=STREAMS,
        places=(Place.DEVICE, *(Place.NETWORK for _ in STREAMS[1:])),
        names=tuple(names),
        start_s=np.array([span[1] for span in spans]),
        end_s=np.array([span[2] for span in spans]),
        lane=np.array([span[0] for span in spans], dtype=np.int64),
        name=np.array([names[span[3]] for span in spans], dtype=np.int64),
        kind=np.array(kinds, dtype=np.int64),
        phase=np.array([_PHASES.get(span[4], SpanPhase.OTHER) for span in spans], dtype=np.int64),
        step=np.zeros(count, dtype=np.int64),
        cause=np.full(count, -1, dtype=np.int64),
        synced=np.zeros(count, dtype=bool),
        variant=np.zeros(count, dtype=np.int64),
        variants=("",),
        messages={
            place: SpanMessage(
                operation=_OPERATIONS.get(span[4], "all_reduce"),
                size_bytes=float("nan"),
                ranks=(stage,),
                label=f"{span[3]} {place}",
            )
            for place, span in enumerate(spans)
            if kinds[place] in (SpanKind.COLLECTIVE, SpanKind.SEND)
        },
    )
