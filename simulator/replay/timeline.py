"""The replayed run as a Chrome trace: a process per rank, a thread per lane, the critical path marked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from forerun.simulator.events.engine.trace_file import write_json
from forerun.simulator.replay.graph import GAP, JOIN
from forerun.simulator.replay.replay import Replay

_MICRO = 1e6


def write_timeline(result: Replay, path: Path) -> None:
    """Write the trace of a replayed run."""
    write_json({"traceEvents": [*_events(result)], "displayTimeUnit": "ms"}, path)


def _events(result: Replay) -> Iterator[dict[str, Any]]:
    graph, critical = result.graph, set(result.path)
    lane_of = {}
    for place, trace in enumerate(graph.traces):
        yield {"ph": "M", "name": "process_name", "pid": place, "args": {"name": f"rank {trace.rank}"}}
        for lane, name in enumerate(trace.lanes):
            yield {"ph": "M", "name": "thread_name", "pid": place, "tid": lane, "args": {"name": name}}
            lane_of[graph.lanes[place][lane]] = (place, lane)
    for task, kind in enumerate(graph.graph.kind):
        start_s, end_s = result.run.start_s[task], result.run.end_s[task]
        if kind in (GAP, JOIN) or end_s <= start_s:
            continue
        place, lane = lane_of[graph.graph.stream[task]]
        span = graph.graph.tag[task][0]
        assert isinstance(span, int)
        yield {
            "ph": "X",
            "name": graph.traces[place].title(span),
            "cat": graph.graph.kinds[kind],
            "pid": place,
            "tid": lane,
            "ts": start_s * _MICRO,
            "dur": (end_s - start_s) * _MICRO,
            "args": {"step": int(graph.step[task]), "critical": task in critical},
        }
    yield from _queues(result, lane_of)


def _queues(result: Replay, lane_of: dict[int, tuple[int, int]]) -> Iterator[dict[str, Any]]:
    """Yield, for every lane, the number of launched or called spans that have not started."""
    # Such spans are kernels after a running one, or messages that wait for others or for other ranks.
    graph, run = result.graph.graph, result.run
    called_s = np.full(len(graph.kind), np.inf)
    for task, later in enumerate(graph.successors):
        for other in later:
            if graph.stream[other] != graph.stream[task] and graph.kind[task] != JOIN:
                called_s[other] = min(called_s[other], run.end_s[task])
    changes: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for task, kind in enumerate(graph.kind):
        # The call is the gap before a span, where it has one.
        called = min(called_s[task], called_s[task - 1] if task and graph.kind[task - 1] == GAP else np.inf)
        if kind not in (GAP, JOIN) and called < run.start_s[task]:
            changes.setdefault(lane_of[graph.stream[task]], []).extend(((called, 1), (run.start_s[task], -1)))
    for (place, lane), moments in changes.items():
        length = 0
        name = f"queue of {result.graph.traces[place].lanes[lane]}"
        for moment_s, change in sorted(moments):
            length += change
            yield {"ph": "C", "name": name, "pid": place, "ts": moment_s * _MICRO, "args": {"spans": length}}
