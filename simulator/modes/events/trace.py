"""The timeline of a training mode as a Chrome trace (Trace Event Format, object form), which Perfetto opens.

A process is a worker, its threads are passes, downloads, uploads and all-reduces; updates of servers are a separate
process. Transfers that share a NIC overlap; each is drawn in the first free lane of its thread. Times are in
microseconds, as the format requires.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forerun.simulator.events.engine.engine import Execution, execute
from forerun.simulator.events.engine.trace_file import write_json
from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.modes.events.build import ModeGraph, build_mode
from forerun.simulator.modes.events.links import KINDS
from forerun.simulator.modes.mode import TrainingMode
from forerun.simulator.modes.network import ModeNetwork
from forerun.simulator.modes.profile import GradientProfile

STEPS = 6
"""Steps of a trace: enough to show how workers diverge, few enough to scroll through."""
LANES = 100
_MICRO = 1e6
_LANES_OF = {"host": 0, "forward": 0, "backward": 0, "download": 1, "upload": 2, "all-reduce": 3, "update": 4}


def mode_trace(
    profile: GradientProfile, mode: TrainingMode, network: ModeNetwork, disturbance: Disturbance | None = None
) -> dict[str, Any]:
    """Return the trace of the first steps of all workers as plain data.

    Raises:
        RequestError: as for ``build_mode``.
    """
    made = build_mode(profile, mode, network, disturbance or Disturbance(), STEPS)
    run = execute(made.graph)
    return {
        "traceEvents": [*_names(mode), *_tasks(made, run, mode.workers)],
        "displayTimeUnit": "ms",
        "otherData": {"model": profile.name, "mode": mode.name, "workers": mode.workers, "steps": STEPS},
    }


def write_mode_trace(trace: dict[str, Any], path: Path) -> None:
    """Write the trace of a training mode."""
    write_json(trace, path)


def _names(mode: TrainingMode) -> Iterator[dict[str, Any]]:
    for worker in range(mode.workers):
        yield {"ph": "M", "name": "process_name", "pid": worker, "args": {"name": f"worker {worker}"}}
        for kind in ("forward", "download", "upload", "all-reduce"):
            name = {"name": "passes" if kind == "forward" else kind}
            yield {"ph": "M", "name": "thread_name", "pid": worker, "tid": _LANES_OF[kind] * LANES, "args": name}
    yield {"ph": "M", "name": "process_name", "pid": mode.workers, "args": {"name": "updates of servers"}}


def _tasks(made: ModeGraph, run: Execution, workers: int) -> Iterator[dict[str, Any]]:
    """Yield one complete event per task of non-zero duration, in the order of their starts."""
    graph = made.graph
    free: dict[tuple[int, int], list[float]] = {}
    for task in sorted(range(len(graph)), key=lambda task: (run.start_s[task], task)):
        kind = KINDS[graph.kind[task]]
        start_s, end_s = run.start_s[task], run.end_s[task]
        if end_s == start_s or kind not in _LANES_OF:
            continue
        for worker in _workers(made, task, workers):
            group = (worker, _LANES_OF[kind])
            lanes = free.setdefault(group, [])
            lane = next((n for n, until_s in enumerate(lanes) if until_s <= start_s), len(lanes))
            lanes[lane : lane + 1] = [end_s]
            yield {
                "ph": "X",
                "name": " ".join([kind, *(str(part) for part in graph.tag[task])]),
                "cat": kind,
                "pid": worker,
                "tid": group[1] * LANES + lane,
                "ts": start_s * _MICRO,
                "dur": (end_s - start_s) * _MICRO,
            }


def _workers(made: ModeGraph, task: int, workers: int) -> list[int]:
    """Return the workers that a task belongs to; an update by a server belongs to none of them."""
    graph = made.graph
    streams = graph.members_of.get(task, (graph.stream[task],))
    devices = [graph.stream_device[stream] for stream in streams if stream >= 0]
    if devices:
        return devices
    named = next((str(part) for part in graph.tag[task] if str(part).startswith("worker ")), "")
    if named and KINDS[graph.kind[task]] != "update":
        return [int(named.split()[1])]
    return [workers]
