"""The replayed run as a Chrome trace: a process per rank, a thread per lane, the critical path marked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
