"""Speed of the event engine and of whole event-level simulations; prints a dated table.

    python benchmarks/events.py [--repeat N]

Each figure is the best of N runs in one process, garbage collection included.
"""

import argparse
import datetime
import platform
import time
import tracemalloc
from collections.abc import Callable

from forerun.search.request import Request, resolve
from forerun.simulator.events import TaskGraph, execute, simulate, simulate_costs, step_costs
from forerun.spaces.strategies import parse_strategy


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


def best_s(run: Callable[[], object], repeat: int) -> float:
    """Return the shortest of some runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def engine_rows(repeat: int) -> None:
    """Print task completions per second of the engine alone."""
    graphs = {
        "nothing shared": pipeline_graph(64, 1500),
        "port of 4, same instants": shared_graph(256, 60, per_port=4, uplinks=False, jitter=False),
        "port of 4, all different": shared_graph(256, 60, per_port=4, uplinks=False, jitter=True),
        "port of 4 and uplink, all different": shared_graph(256, 60, per_port=4, uplinks=True, jitter=True),
    }
    for name, graph in graphs.items():
        seconds = best_s(lambda graph=graph: execute(graph), repeat)  # type: ignore[misc]  # bound at once
        print(f"  {name:38s} {len(graph):8d} tasks {len(graph) / seconds:12,.0f} tasks/s")


def step_rows(repeat: int) -> None:
    """Print seconds and memory of whole simulations: the 96-layer step of the target, and how it grows."""
    for gpus, batch, text in (
        (512, 512, "tp8 pp16 dp4 mbs1 zero1 sp"),
        (512, 512, "tp8 pp16 dp4 mbs1 zero1 sp vpp6 schedule=interleaved"),
        (128, 128, "tp8 pp4 dp4 mbs1 zero1 sp"),
        (128, 512, "tp8 pp4 dp4 mbs1 zero1 sp"),
        (512, 2048, "tp8 pp16 dp4 mbs1 zero1 sp"),
    ):
        request = Request(model="gpt3-175b", cluster="dgx-h100", gpus=str(gpus), global_batch=batch, seq_len=2048)
        context, strategy = resolve(request).context, parse_strategy(text)
        seconds = best_s(lambda c=context, s=strategy: simulate(c, s), repeat)  # type: ignore[misc]  # bound at once
        tracemalloc.start()
        tasks = len(simulate(context, strategy).graph)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"  {text:54s} batch {batch:4d} {tasks:7d} tasks {seconds:7.3f} s {peak / 1e6:7.1f} MB")


def device_rows() -> None:
    """Print one simulation of the same step without symmetry: every device of 512 on its own."""
    text = "tp8 pp16 dp4 mbs1 zero1 sp"
    request = Request(model="gpt3-175b", cluster="dgx-h100", gpus="512", global_batch=512, seq_len=2048)
    costs = step_costs(resolve(request).context, parse_strategy(text))
    for replicas in (4, 32):
        start = time.perf_counter()
        tasks = len(simulate_costs(costs, replicas=replicas).graph)
        seconds = time.perf_counter() - start
        print(f"  {replicas * 16:4d} devices {tasks:8d} tasks {seconds:7.2f} s")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    print(f"{datetime.date.today()}, Python {platform.python_version()}, {platform.processor() or platform.machine()}")
    print("engine:")
    engine_rows(repeat)
    print("one step of gpt3-175b, symmetry used:")
    step_rows(repeat)
    print("the same without symmetry:")
    device_rows()


if __name__ == "__main__":
    main()
