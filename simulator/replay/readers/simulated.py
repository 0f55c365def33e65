"""Timelines that forerun wrote of a simulated step (``--trace``): a process per pipeline rank, a thread per stream.

Nothing in them says what waited for what, but everything is where it ran, to the last digit: a replay gives the step
back. Each exchange stands on the stage that has it and has no partner on others.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

from forerun.simulator.events.engine.kinds import STREAMS
from forerun.simulator.replay.readers.json_stream import JsonStream, Progress
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
_OPERATIONS = {"gather": "all_gather", "send": "send"}


def is_simulated(event: Any) -> bool:
    """Whether an event is the first of such a timeline: it names a stage as ``process_name``."""
    if not isinstance(event, dict) or event.get("ph") != "M" or event.get("name") != "process_name":
        return False
    named = event.get("args")
    return isinstance(named, dict) and re.match(r"(replica \d+ )?stage \d+", str(named.get("name"))) is not None


def read_simulated(path: Path, progress: Progress | None = None) -> list[tuple[RankTrace, int]]:
    """Return a rank for every process of one file, and where their times begin (0).

    Raises:
        RequestError: the file is torn, or has no tasks.
    """
    spans: dict[int, list[tuple[int, float, float, str, str]]] = {}
    stream = JsonStream(path, progress)
    for event in stream.items("traceEvents"):
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        try:
            begin_s, took_s = float(event["ts"]) * 1e-6, float(event["dur"]) * 1e-6
            span = (int(event["tid"]), begin_s, begin_s + took_s, str(event["name"]), str(event.get("cat", "")))
            spans.setdefault(int(event["pid"]), []).append(span)
        except (KeyError, TypeError, ValueError) as error:
            raise RequestError(f"{path}: a task of a timeline has pid, tid, ts and dur, but got {event}") from error
    if not spans:
        raise RequestError(f"{path} has no tasks; was the timeline written to its end?")
    return [(_rank(path, stage, own), 0) for stage, own in sorted(spans.items())]


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
