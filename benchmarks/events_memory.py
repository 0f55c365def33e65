"""Memory of one simulated step against the number of its tasks, every point in a process of its own.

    python benchmarks/events_memory.py MICROBATCHES MODE

simulates one step of gpt3-13b with ZeRO 3 on 64 GPUs and prints one line of JSON: ``tasks``, ``live`` (most tasks that
were in memory at once), ``allocated`` (peak of what Python allocates in the run, in bytes) and ``seconds``. MODE:
``figures`` (what refines a search), ``timeline`` (what ``simulate`` keeps), ``trace`` (the same with its trace written
to a file) or ``whole`` (all tasks built before they run).
"""

import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from dataclasses import dataclass, replace
from pathlib import Path

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.events import StepCosts, compile_step, execute, simulate_costs, step_costs, write_trace
from forerun.simulator.events.engine.live_graph import LiveGraph
from forerun.simulator.events.step.strategy_step import step_use
from forerun.spaces.strategies import parse_strategy

MODES = ("figures", "timeline", "trace", "whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run."""

    mode: str
    tasks: int
    live: int
    allocated: int
    seconds: float


def measure(microbatches: int, mode: str) -> Point:
    """Run one step in a fresh process for its time, and in another one for what Python allocates."""
    found = {}
    for traced in ("", "traced"):
        words = [sys.executable, __file__, str(microbatches), mode, *([traced] if traced else [])]
        found[traced] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return Point(mode=mode, **{**found["traced"], "seconds": found[""]["seconds"]})


def costs_of(microbatches: int) -> StepCosts:
    """Return a step of the given microbatches in which all replicas gather and reduce with every one of them."""
    request = Request(model="gpt3-13b", cluster="dgx-h100", gpus="64", global_batch=64, seq_len=2048)
    costs = step_costs(assign(resolve(request).context, parse_strategy("tp1 pp4 dp16 mbs1 zero3")))
    return replace(costs, shape=replace(costs.shape, microbatches=microbatches))


def run(costs: StepCosts, mode: str) -> int:
    """Simulate a step; return the number of its tasks where that is known."""
    if mode == "figures":
        step_use(costs)
        return 0
    if mode == "whole":
        graph = compile_step(costs)
        execute(graph)
        return len(graph)
    result = simulate_costs(costs)
    if mode == "trace":
        with tempfile.TemporaryDirectory() as folder:
            write_trace(result, Path(folder) / "step.json.gz")
    return len(result.records)


def main() -> None:
    """Print one point as JSON."""
    microbatches, mode, traced = int(sys.argv[1]), sys.argv[2], len(sys.argv) > 3
    run(costs_of(8), mode)
    costs = costs_of(microbatches)
    added = ended = live = 0
    if traced:  # counting costs time, so that the other process goes without
        add, forget = LiveGraph.add, LiveGraph.forget

        def counted_add(*args: object, **more: object) -> int:
            nonlocal added, live
            added += 1
            live = max(live, added - ended)
            return add(*args, **more)  # type: ignore[arg-type]  # passed on as they come

        def counted_forget(graph: LiveGraph, task: int) -> list[int]:
            nonlocal ended
            ended += 1
            return forget(graph, task)

        LiveGraph.add, LiveGraph.forget = counted_add, counted_forget  # type: ignore[method-assign, assignment]
        tracemalloc.start()
    start = time.process_time()
    tasks = run(costs, mode)
    seconds = time.process_time() - start
    point = {
        "tasks": tasks or added,
        "live": live or tasks,
        "allocated": tracemalloc.get_traced_memory()[1] if traced else 0,
        "seconds": seconds,
    }
    print(json.dumps(point))


if __name__ == "__main__":
    main()
