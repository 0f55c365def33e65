"""The timeline as a Chrome trace (Trace Event Format, object form), which Perfetto and chrome://tracing open.

A process is a pipeline rank, a thread one of its streams, a counter its memory. A flow arrow leads from a transfer to
the pass that waits for it. Times are in microseconds, as the format requires.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from forerun.simulator.events.engine.kinds import STREAMS
from forerun.simulator.events.engine.trace_file import write_events
from forerun.simulator.events.step.result import EventResult, TimelineTask
from forerun.simulator.events.step.tally import shares_of

_COLOURS = {
    "forward": "thread_state_running",
    "backward": "thread_state_runnable",
    "input gradient": "thread_state_runnable",
    "weight gradient": "thread_state_iowait",
    "host": "grey",
}
"""Names of colours reserved by the trace viewer."""
_MICRO = 1e6
_PASSES = frozenset({"forward", "backward", "input gradient", "weight gradient"})


def trace_events(result: EventResult) -> dict[str, Any]:
    """Return the trace as plain data: ``traceEvents`` and the metadata of the step."""
    return {"traceEvents": list(_events(result)), **_about(result)}


def write_trace(result: EventResult, path: Path) -> None:
    """Write the trace of a step one event at a time, without a copy of the records in memory.

    Raises:
        OSError: the file cannot be written.
    """
    write_events(_events(result), _about(result), path)


def _events(result: EventResult) -> Iterator[dict[str, Any]]:
    yield from _names(result)
    yield from _tasks(result)
    yield from _flows(result)
    yield from _memory(result)


def _about(result: EventResult) -> dict[str, Any]:
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "step_time_s": result.step_time_s,
            "bubble_share": result.bubble_share,
            "critical_s": dict(result.critical_s),
        },
    }


def _names(result: EventResult) -> Iterator[dict[str, Any]]:
    """Yield names and order of processes and threads."""
    for stage in range(len(result.stages)):
        yield {"ph": "M", "name": "process_name", "pid": stage, "args": {"name": result.stage_name(stage)}}
        yield {"ph": "M", "name": "process_sort_index", "pid": stage, "args": {"sort_index": stage}}
        for thread, stream in enumerate(STREAMS):
            yield {"ph": "M", "name": "thread_name", "pid": stage, "tid": thread, "args": {"name": stream}}


def _tasks(result: EventResult) -> Iterator[dict[str, Any]]:
    """Yield one complete event for every task on every stream that it occupies."""
    critical, shares = set(result.critical_path), shares_of(result.costs)
    for task in result.timeline():
        if task.end_s == task.start_s:
            continue
        for stream in result.records.streams_of(task.number):
            event: dict[str, Any] = {
                "ph": "X",
                "name": task.name,
                "cat": task.kind,
                "pid": stream // len(STREAMS),
                "tid": stream % len(STREAMS),
                "ts": task.start_s * _MICRO,
                "dur": (task.end_s - task.start_s) * _MICRO,
                "args": {"critical": task.number in critical, **_consists_of(result, task, shares)},
            }
            if task.kind in _COLOURS:
                event["cname"] = _COLOURS[task.kind]
            yield event


def _consists_of(
    result: EventResult, task: TimelineTask, shares: Sequence[Sequence[tuple[str, float]]]
) -> dict[str, float]:
    """Return the parts of a transformer's pass in milliseconds: computation, and the collectives within it."""
    tag = result.records.tag_of(task.number)
    if task.kind not in _PASSES or len(tag) < 2 or not isinstance(tag[1], int) or tag[1] >= len(shares):
        return {}
    return {f"{part}_ms": share * (task.end_s - task.start_s) * 1e3 for part, share in shares[tag[1]]}


def _flows(result: EventResult) -> Iterator[dict[str, Any]]:
    """Yield an arrow from every transfer to the start of the pass that waits for it."""
    records = result.records
    for task, after in records.arrows.tolist():
        common = {"name": "activations", "cat": "send", "id": task}
        for phase, one in (({"ph": "s"}, task), ({"ph": "f", "bp": "e"}, after)):
            stage, thread = divmod(records.streams_of(one)[0], len(STREAMS))
            yield {**phase, **common, "pid": stage, "tid": thread, "ts": float(records.start_s[one]) * _MICRO}


def _memory(result: EventResult) -> Iterator[dict[str, Any]]:
    """Yield the bytes of live tensors of every stage at every change."""
    for stage, curve in enumerate(result.memory):
        last = len(curve.time_s) - 1
        for place, (now_s, live_bytes) in enumerate(zip(curve.time_s, curve.held_bytes, strict=True)):
            if place == last or curve.time_s[place + 1] != now_s:
                args = {"bytes": float(live_bytes)}
                yield {"ph": "C", "name": "memory", "pid": stage, "ts": float(now_s) * _MICRO, "args": args}
