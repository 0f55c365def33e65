"""Speed and memory of the event engine.

    python benchmarks/events.py [--repeat N] [--out FILE.md]

Each time is the best of N runs in one process, garbage collection included, in seconds of the processor, so that other
programs on the machine count for less; memory is the peak that Python allocates. ``--out`` writes the tables.
"""

import argparse
import datetime
import os
import platform
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.events import (
    Disturbance,
    StepCosts,
    TaskGraph,
    compile_step,
    event_scores,
    execute,
    simulate,
    simulate_costs,
    step_costs,
)
from forerun.simulator.events.step.contention import Contention
from forerun.simulator.events.step.strategy_step import step_contention, step_use
from forerun.spaces.strategies import Context, parse_strategy, table_of

FLAT = "tp8 pp16 dp4 mbs1 zero1 sp"
"""The step that the issue names: 512 GPUs, 96 layers, 128 microbatches."""


def pipeline_graph(devices: int, microbatches: int) -> TaskGraph:
    """Return a chain of devices: every microbatch is computed and sent on; nothing is shared."""
    graph = TaskGraph(["compute", "send"])
    streams = [graph.add_stream(f"device {device}", device=device) for device in range(devices)]
    for _ in range(microbatches):
        sent: tuple[int, ...] = ()
        for device in range(devices):
            task = graph.add(0, 1.0 + device * 0.01, streams[device], sent)
            sent = (graph.add(1, 0.1, -1, (task,)),)
    return graph


def shared_graph(devices: int, rounds: int, *, per_port: int, uplinks: bool, jitter: bool) -> TaskGraph:
    """Return devices that compute and then send over a port that several of them share, and over an uplink of every
    four ports; without ``jitter`` all do so at the same instants."""
    graph = TaskGraph(["compute", "send"])
    ports = [graph.add_link(f"port {port}", 1e9) for port in range(devices // per_port)]
    above = [graph.add_link(f"uplink {port}", 2e9) for port in range(len(ports) // 4)]
    streams = [graph.add_stream(f"device {device}", device=device) for device in range(devices)]
    for turn in range(rounds):
        for device, stream in enumerate(streams):
            wait_s = 1e-3 * (1 + (device * 7919 + turn * 104729) % 101 / 100 * jitter)
            size = 1e5 * (1 + (device * 31 + turn * 17) % 13 * jitter)
            port = device % len(ports)
            route = [ports[port], above[port // 4]] if uplinks else [ports[port]]
            task = graph.add(0, wait_s, stream)
            graph.add_transfer(1, size, route, stream, (task,), latency_s=1e-6)
    return graph


def context_of(model: str, cluster: str, gpus: int, batch: int) -> Context:
    """Return a request at 2,048 tokens."""
    return resolve(Request(model=model, cluster=cluster, gpus=str(gpus), global_batch=batch, seq_len=2048)).context


def contended_step(
    cluster: str, gpus: int, batch: int, text: str, *, every_replica: bool = False
) -> tuple[StepCosts, Contention]:
    """Return a step whose traffic shares the links of a cluster; with ``every_replica`` of each."""
    context, strategy = context_of("gpt3-13b", cluster, gpus, batch), parse_strategy(text)
    costs = step_costs(assign(context, strategy))
    return costs, step_contention(assign(context, strategy), costs, every_replica=every_replica)


def best_s(run: Callable[[], object], repeat: int) -> float:
    """Return the shortest of some runs."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the most that Python allocates during a run."""
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def engine_rows(repeat: int) -> list[str]:
    """Return task completions per second of the engine alone."""
    near = "tp1 pp8 dp8 mbs1 placement=tp-cp-ep-pp-dp"
    graphs: dict[str, Callable[[], TaskGraph]] = {
        "nothing shared": lambda: pipeline_graph(64, 1500),
        "port of 4, same instants": lambda: shared_graph(256, 60, per_port=4, uplinks=False, jitter=False),
        "port of 4, all different": lambda: shared_graph(256, 60, per_port=4, uplinks=False, jitter=True),
        "port of 4 and uplink, same instants": lambda: shared_graph(256, 60, per_port=4, uplinks=True, jitter=False),
        "port of 4 and saturated uplink, all different": lambda: shared_graph(
            256, 60, per_port=4, uplinks=True, jitter=True
        ),
    }
    steps: dict[str, tuple[str, int, int, str, bool]] = {
        "step with contention, 64 A100, stages share NICs": ("aws-p4d", 64, 512, near + " zero1", False),
        "the same, every replica": ("aws-p4d", 64, 512, near + " zero1", True),
        "the same, ZeRO 2 (traffic in every microbatch)": ("aws-p4d", 64, 256, near + " zero2", False),
        "step with contention, 512 H100": ("dgx-h100", 512, 8192, "tp4 pp8 dp16 mbs1 zero1 sp", False),
    }
    lines = ["| tasks | number | tasks/s | written while it runs, writing included |", "|---|---|---|---|"]
    for name, made in graphs.items():
        graph = made()  # one at a time: a collector that walks through others would be counted in
        seconds = best_s(lambda graph=graph: execute(graph), repeat)  # type: ignore[misc]  # bound at once
        lines.append(f"| {name} | {len(graph):,} | {len(graph) / seconds:,.0f} | |")
    for name, (cluster, gpus, batch, text, every_replica) in steps.items():
        costs, shared = contended_step(cluster, gpus, batch, text, every_replica=every_replica)
        graph = compile_step(costs, replicas=shared.simulated, contention=shared)
        whole_s = best_s(lambda graph=graph: execute(graph), repeat)  # type: ignore[misc]  # bound at once
        live_s = best_s(
            lambda costs=costs, shared=shared: step_use(costs, replicas=shared.simulated, contention=shared),  # type: ignore[misc]
            repeat,
        )
        count = len(graph)
        lines.append(f"| {name} | {count:,} | {count / whole_s:,.0f} | {count / live_s:,.0f} |")
    return lines


def target_rows(repeat: int) -> list[str]:
    """Return seconds and memory of the step that the issue names, with and without symmetry."""
    context, strategy = context_of("gpt3-175b", "dgx-h100", 512, 512), parse_strategy(FLAT)
    costs, table = step_costs(assign(context, strategy)), table_of([strategy])
    runs: dict[str, Callable[[], object]] = {
        "one pipeline for all, timeline": lambda: simulate(context, strategy),
        "its figures alone (what refines a search)": lambda: event_scores(context, table),
        "with contention, timeline": lambda: simulate(context, strategy, contention=True),
        "4 pipelines, all devices but tensor ranks": lambda: simulate(
            context, strategy, Disturbance(every_replica=True)
        ),
        "32 pipelines, 512 devices one by one": lambda: simulate_costs(costs, replicas=32),
    }
    lines = ["| gpt3-175b, tp8 pp16 dp4, 128 microbatches | seconds | MB |", "|---|---|---|"]
    for name, run in runs.items():
        lines.append(f"| {name} | {best_s(run, repeat):.3f} | {peak_bytes(run) / 1e6:.1f} |")
    return lines


def main() -> None:
    """Print all tables, and write them where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    text = "\n".join(
        [
            f"# Event engine, {datetime.date.today()}",
            "",
            f"`python benchmarks/events.py --repeat {args.repeat}` at commit {commit.strip() or 'unknown'}; "
            f"Python {platform.python_version()}, {os.cpu_count()} x {platform.machine()}. Best of {args.repeat} runs,",
            "in seconds of one core.",
            "",
            "Asked: 300,000 tasks a second with contention; the step below in 0.2 s with symmetry and in 30 s with",
            "every device on its own. Proteus takes 6.3 s for 32 GPUs and DistSim 0.14 s for 16, by their papers.",
            "",
            *engine_rows(args.repeat),
            "",
            *target_rows(args.repeat),
            "",
        ]
    )
    print(text)
    if args.out is not None:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
