"""What distribution costs: overhead per slice, scaling, kills, and how many evaluations each sampler needs.

    python benchmarks/distribution.py [--gpus 8..8192] [--kills 20]
        [--only scaling,memory,overhead,cluster,kills,samplers]

Writes ``benchmarks/results/<date>-distribution.md`` and ``.json``. Times depend on what else the machine does: the load
average at the start is part of the results.
"""

import argparse
import datetime
import heapq
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

from distribution_page import KINDS, markdown

RESULTS = Path(__file__).parent / "results"
REQUEST = {
    "model": "gpt3-175b",
    "cluster": "dgx-h100",
    "global_batch": 1536,
    "seq_len": 2048,
    "framework": "generic",
}
UNEVEN = {"model": "llama3-70b", "cluster": "dgx-h100", "gpus": "128", "global_batch": 1024, "seq_len": 8192}
PLAN = """\
models: [llama3-8b, llama3-70b]
clusters: [dgx-h100]
workloads: [{global_batch: 64, seq_len: 4096}, {global_batch: 128, seq_len: 4096}]
budgets: [{gpus: 16}, {gpus: 32}, {gpus: 64}]
top: 3
"""


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", default="8..8192", help="device counts of the search that is scaled")
    parser.add_argument("--rounds", type=int, default=3, help="how often every kind of workers does it")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--only", default="scaling,memory,overhead,cluster,kills,samplers")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    wanted = args.only.split(",")
    document: dict[str, Any] = {"schema": 1, "machine": machine()}
    if "scaling" in wanted:
        # Rounds, because other work on the machine comes and goes: only rows of one round compare.
        document["scaling"] = [
            {"round": turn, **scaling(kind, count, args.gpus)} for turn in range(args.rounds) for kind, count in KINDS
        ]
    if "memory" in wanted:
        document["memory"] = [memory(slices) for slices in (100, 1_000, 10_000)]
    if "overhead" in wanted:
        document["overhead"] = [overhead(kind, count) for kind, count in KINDS[1:]]
    if "cluster" in wanted:
        measured = {row["workers"]: row["driver_s_per_item"] for row in document.get("overhead", [])}
        document["cluster"] = [clustered(count, measured.get("ray", 0.0005)) for count in (2, 64, 1024)]
    if "kills" in wanted:
        document["kills"] = kills(args.kills)
    if "samplers" in wanted:
        document["samplers"] = samplers()
    write(document)


def scaling(kind: str, count: int, gpus: str) -> dict[str, Any]:
    """Search a whole space with some workers: wall time, and where the time of the workers went.

    ``between_s`` is what workers waited between two slices: scheduling and transfer. ``starting_s`` is until each had
    its first slice (it imports forerun), ``ending_s`` after its last.
    """
    import resource

    from forerun.search.explore.flat.exhaustive import Problem, SliceResult
    from forerun.search.explore.flat.slicing import Cuts, Task
    from forerun.search.request.request import Request
    from forerun.search.request.resolve import resolve
    from forerun.search.workers import Choice, open_workers
    from forerun.simulator import score

    space = resolve(Request(**REQUEST, gpus=gpus)).space()  # type: ignore[arg-type]  # values of the fields' types
    problem = Problem(space=space, objective="throughput", top=10)
    begin = time.monotonic()
    piece, spans, cpu_s = SliceResult(), dict[int, list[tuple[float, float]]](), 0.0
    with open_workers(Choice(kind=kind, count=count)) as workers:
        if workers.name != kind:
            return {"workers": kind, "count": count, "missing": "; ".join(workers.remarks)}
        list(workers.run(nothing, None, range(count)))  # start of Ray's first tasks
        start = time.monotonic()
        cuts = Cuts(low=0, high=space.size, workers=count)
        for outcome in workers.run(timed, Task(problem=problem, score=score), iter(cuts)):
            cuts.learn(outcome)
            found, process, first, last, used_s = outcome.result
            cpu_s += used_s
            piece = problem.merged([piece, found])
            spans.setdefault(process, []).append((first, last))
            end = time.monotonic()
    assert piece.best is not None
    wall_s = end - start
    each = [sorted(span) for span in spans.values()]
    row: dict[str, Any] = {
        "workers": kind,
        "count": count,
        "candidates": space.size,
        "legal": piece.legal,
        "slices": sum(map(len, each)),
        "start_s": start - begin,
        "wall_s": wall_s,
        "busy_s": sum(last - first for span in each for first, last in span),
        "cpu_s": cpu_s,
        "starting_s": sum(span[0][0] - start for span in each),
        "between_s": sum(after[0] - before[1] for span in each for before, after in pairwise(span)),
        "ending_s": sum(end - span[-1][1] for span in each),
        "driver_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "load_average": os.getloadavg()[0],
        "best": piece.best.index.tolist(),
    }
    row["own_cores_s"] = (cpu_s + row["starting_s"] + row["between_s"] + row["ending_s"]) / count
    print(row, file=sys.stderr)
    return row


def timed(task: Any, item: tuple[int, int]) -> tuple[Any, int, float, float, float]:
    """Search a slice; say who did it, when (this machine has one clock), and the CPU seconds it took."""
    from forerun.search.explore.flat.slicing import search_one

    begin, used_s = time.monotonic(), time.process_time()
    found = search_one(task, item)
    return found, os.getpid(), begin, time.monotonic(), time.process_time() - used_s


def memory(slices: int) -> dict[str, Any]:
    """Merge the pieces of so many full slices in a driver: its peak of Python memory (tracemalloc)."""
    import tracemalloc

    import numpy as np

    from forerun.search.explore.flat.exhaustive import Best, SliceResult, merge
    from forerun.simulator import MEMORY_PARTS, TIME_PARTS, ScoreTable

    piece = SliceResult()
    tracemalloc.start()
    for number in range(slices):
        index = np.arange(1000 * number, 1000 * number + 1000)
        keys = np.sin(index.astype(np.float64))
        scores = ScoreTable(
            step_time_s=keys,
            time_s=dict.fromkeys(TIME_PARTS, keys),
            peak_memory_bytes=keys,
            allocated_bytes=keys,
            memory_bytes=dict.fromkeys(MEMORY_PARTS, keys),
            peak_stage=index,
            fits=index >= 0,
        )
        best = Best(index=index, keys=keys[None, :], scores=scores)
        piece = merge(
            [piece, SliceResult(enumerated=1000, legal=1000, feasible=1000, best=best, closest=best)], top=1000
        )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"slices": slices, "peak_mib": peak / 2**20}


def nothing(common: None, item: int) -> int:
    """The least work there is."""
    return item


def overhead(kind: str, count: int, items: int = 2000) -> dict[str, Any]:
    """Send many items that do nothing: the driver's seconds for one, there and back."""
    from forerun.search.workers import Choice, open_workers

    with open_workers(Choice(kind=kind, count=count)) as workers:
        list(workers.run(nothing, None, range(10)))
        start = time.perf_counter()
        list(workers.run(nothing, None, range(items)))
        seconds = time.perf_counter() - start
    row = {"workers": workers.name, "count": count, "items": items, "driver_s_per_item": seconds / items}
    print(row, file=sys.stderr)
    return row


def clustered(count: int, driver_s: float, per_worker: int = 100) -> dict[str, Any]:
    """Simulate ``count`` workers that one driver serves: every item costs the driver ``driver_s``, one at a time.

    Slices last half to twice their target, as the steering of their width lets them; the driver serves whoever is
    first.
    """
    from forerun.search.explore.flat.slicing import target_s

    slice_s = target_s(count)
    draw = random.Random(count)
    left, busy_s, driver_free_s, end_s = per_worker * count, 0.0, 0.0, 0.0
    free = [0.0] * count
    while left:
        ready_s = heapq.heappop(free)
        driver_free_s = max(driver_free_s, ready_s) + driver_s
        seconds = slice_s * 2 ** draw.uniform(-1, 1)
        left, busy_s = left - 1, busy_s + seconds
        end_s = max(end_s, driver_free_s + seconds)
        heapq.heappush(free, driver_free_s + seconds)
    return {"workers": count, "slice_s": slice_s, "driver_s_per_item": driver_s, "efficiency": busy_s / (count * end_s)}


def kills(count: int) -> dict[str, Any]:
    """Kill a sweep at random moments until it was killed ``count`` times, and compare with one left in peace."""
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "plan.yaml").write_text(PLAN)
        command = [sys.executable, "-m", "forerun.search", "sweep", str(folder / "plan.yaml"), "--out"]
        start = time.perf_counter()
        subprocess.run([*command, str(folder / "whole")], check=True, capture_output=True)
        whole_s = time.perf_counter() - start
        killed = rounds = twice = equal = 0
        while killed < count:
            rounds += 1
            run = folder / f"run{rounds}"
            while True:
                process = subprocess.Popen(
                    [*command, str(run), "--resume"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                try:
                    process.wait(draw.uniform(0.3, 1.2) * whole_s)
                    break
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    killed += 1
            keys = [json.loads(line)["key"] for line in (run / "pieces.jsonl").read_text().splitlines()]
            twice += len(keys) - len(set(keys))
            names = ("leaderboard.json", "leaderboard.csv", "pieces.csv")
            equal += all((run / n).read_bytes() == (folder / "whole" / n).read_bytes() for n in names)
    row = {"kills": killed, "sweeps": rounds, "equal_to_undisturbed": equal, "done_twice": twice}
    print(row, file=sys.stderr)
    return row


def samplers() -> dict[str, Any]:
    """Strategies scored until a sampler comes within some per cent of the best that any found, from flat starts."""
    from forerun.search.explore.flat.exhaustive import Problem
    from forerun.search.explore.samplers import Exploring, StopConditions, explore, sampler_named
    from forerun.search.explore.samplers.warm_starts import flat_starts
    from forerun.search.request.request import Request
    from forerun.search.request.resolve import resolve
    from forerun.search.workers import Choice
    from forerun.spaces.strategies.staged_space import StagedSpace

    space = StagedSpace(flat=resolve(Request(**UNEVEN)).space())  # type: ignore[arg-type]  # as above
    starts = flat_starts(Problem(space=space.flat, objective="throughput", top=10), Choice(kind="serial"))
    assert starts.piece.best is not None
    flat_s = float(starts.piece.best.keys[0][0])
    runs = []
    for name, seeds, most in (("local", 5, 4000), ("random", 2, 8000), ("tpe", 1, 600)):
        for seed in range(seeds):
            start = time.perf_counter()
            sampler, _ = sampler_named(Exploring(sampler=name, seed=seed), space)
            limits = StopConditions(evaluations=most, asked=most if name == "tpe" else 10**6, stagnation=None)
            found = explore(space, sampler, starts=starts.strategies, limits=limits)
            run = {"sampler": name, "seed": seed, "scored": found.scored, "seconds": time.perf_counter() - start}
            runs.append({**run, "curve": found.curve, "best_s": found.curve[-1][1]})
            print({k: v for k, v in runs[-1].items() if k != "curve"}, file=sys.stderr)
    best_s = min(run["best_s"] for run in runs)
    levels = (0.02, 0.01, 0.001)
    for run in runs:
        run["needed"] = {
            f"{level:.1%}": _first(run["curve"], lambda s, x=level: s <= best_s * (1 + x)) for level in levels
        }
    return {"candidates": space.size, "flat_best_s": flat_s, "best_s": best_s, "runs": runs}


def _first(curve: Any, reached: Callable[[float], bool]) -> int | None:
    return next((scored for scored, seconds in curve if reached(seconds)), None)


def machine() -> dict[str, Any]:
    """Return what was measured on."""
    packages = {name: version(name) for name in ("numpy", "optuna", "ray")}
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **packages,
        "load_average": os.getloadavg(),
    }


def write(document: dict[str, Any]) -> None:
    """Write the results as JSON and as Markdown."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{date}-distribution.json"
    if path.exists():  # --only measures a part anew
        document = {**json.loads(path.read_text()), **document}
        document.pop("date")
    path.write_text(json.dumps({"date": date, **document}, indent=1) + "\n")
    (RESULTS / f"{date}-distribution.md").write_text("\n".join(markdown(date, document)) + "\n")
    print(RESULTS / f"{date}-distribution.md")


if __name__ == "__main__":
    main()
