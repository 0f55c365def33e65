"""How fast forerun is: candidates per second, bytes per candidate, start-up and the search of the README.

    python benchmarks/speed.py [--largest 7] [--repeat 5]

Everything runs on one core (affinity and OMP_NUM_THREADS). Candidates are legal ones of GPT-3 175B on 8 to 8192 H100
under the profile that can express every axis; each count is measured in a process of its own, so that its peak memory
is its own. Writes ``benchmarks/results/<date>-speed.md`` and ``.json``.
"""

import argparse
import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
REQUEST = {
    "model": "gpt3-175b",
    "cluster": "dgx-h100",
    "gpus": "8..8192",
    "global_batch": 1536,
    "seq_len": 2048,
    "framework": "generic",
}
README_SEARCH = "search llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 --seq-len 8192"
COMMANDS = ("--help", "search --help", f"{README_SEARCH} --json", README_SEARCH)
SCORED_AT_ONCE = 1 << 16


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=7, help="largest power of ten of candidates")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each command")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if args.one:
        print(json.dumps(measure_candidates(args.one)))
        return
    document = {
        "schema": 1,
        "hardware": hardware(),
        "request": REQUEST,
        "candidates": [in_own_process(10**power) for power in range(3, args.largest + 1)],
        "commands": [measure_command(command, args.repeat) for command in COMMANDS],
    }
    write(document)


def in_own_process(count: int) -> dict[str, Any]:
    """Return ``measure_candidates(count)`` as a new process finds it."""
    command = [sys.executable, __file__, "--one", str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    print(f"{count:,} candidates: {done.stdout.strip()}", file=sys.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure_candidates(count: int) -> dict[str, Any]:
    """Search the first ``count`` legal candidates or so, and score one chunk of them alone.

    ``search``: enumeration, legality, scores and ranking. ``core``: scores of a table that stands ready.
    """
    from forerun.search.explore.flat.exhaustive import Problem, search_slice
    from forerun.search.request.request import Request
    from forerun.search.request.resolve import resolve
    from forerun.simulator import score

    space = resolve(Request(**REQUEST)).space()  # type: ignore[arg-type]  # values of the fields' types
    high, table = first_legal(space, count)
    problem = Problem(space=space, objective="throughput", top=10)
    start = time.perf_counter()
    piece = search_slice(problem, 0, high)
    search_s = time.perf_counter() - start
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.perf_counter()
    scores = score(space.context, table)
    core_s = time.perf_counter() - start
    arrays = [scores.step_time_s, scores.peak_memory_bytes, scores.allocated_bytes, scores.peak_stage, scores.fits]
    arrays += [*scores.time_s.values(), *scores.memory_bytes.values()]
    return {
        "legal": piece.legal,
        "enumerated": piece.enumerated,
        "search_s": search_s,
        "search_candidates_per_s": piece.legal / search_s,
        "core_rows": len(table),
        "core_candidates_per_s": len(table) / core_s,
        "table_bytes_per_candidate": (table.index.nbytes + sum(c.nbytes for c in table.codes.values())) / len(table),
        "score_bytes_per_candidate": sum(array.nbytes for array in arrays) / len(table),
        "peak_process_mib": peak_mib,
    }


def first_legal(space: Any, count: int) -> tuple[int, Any]:
    """Return the index up to which a space has about ``count`` legal candidates, and a table of some of them."""
    from forerun.search.explore.flat.exhaustive import slices

    legal = enumerated = 0
    chunk = min(count, SCORED_AT_ONCE)
    table = None
    for part in slices(space, 0, space.size, chunk):
        found = part.table
        if len(found) and (table is None or len(found) > len(table)):
            table = found.take(slice(0, chunk))
        if legal + len(found) >= count:
            rest = count - legal
            return (int(found.index[rest - 1]) + 1 if rest else enumerated), table
        legal, enumerated = legal + len(found), enumerated + part.width
    raise SystemExit(f"the space has {legal:,} legal candidates, fewer than {count:,}")


def measure_command(command: str, repeat: int) -> dict[str, Any]:
    """Return the wall time of one command from the shell, start-up included."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "forerun.search", *command.split()], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    print(f"forerun {command}: {statistics.median(times):.3f} s", file=sys.stderr)
    return {"command": f"forerun {command}", "median_s": statistics.median(times), "least_s": min(times)}


def hardware() -> dict[str, Any]:
    """Return what the figures were measured on."""
    import numpy

    names = [line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "cores_used": 1,
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def write(document: dict[str, Any]) -> None:
    """Write the results as JSON and as Markdown."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{date}-speed.json").write_text(json.dumps({"date": date, **document}, indent=2) + "\n")
    (RESULTS / f"{date}-speed.md").write_text(markdown(date, document))
    print(RESULTS / f"{date}-speed.md")


def markdown(date: str, document: dict[str, Any]) -> str:
    """Return the results as a page."""
    machine = document["hardware"]
    lines = [
        f"# Speed, {date}",
        "",
        f"{machine['cpu']}, one of {machine['cores']} cores, {machine['system']}, Python {machine['python']}, "
        f"numpy {machine['numpy']}. Made by `python benchmarks/speed.py`.",
        "",
        "Legal candidates of GPT-3 175B on 8 to 8192 H100, all axes. Search: enumeration, legality, time and memory "
        "with their parts, ranking. Core: scores of a table that stands ready (at most 65,536 rows).",
        "",
        "| legal | enumerated | search, s | search, candidates/s | core, candidates/s | table, bytes each "
        "| scores, bytes each | peak of the process, MiB |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['legal']:,} | {row['enumerated']:,} | {row['search_s']:.3f} | {row['search_candidates_per_s']:,.0f} | "
        f"{row['core_candidates_per_s']:,.0f} | {row['table_bytes_per_candidate']:.0f} | "
        f"{row['score_bytes_per_candidate']:.0f} | {row['peak_process_mib']:.0f} |"
        for row in document["candidates"]
    ]
    lines += ["", "| command, start-up included | median, s | least, s |", "|---|---:|---:|"]
    lines += [f"| `{row['command']}` | {row['median_s']:.3f} | {row['least_s']:.3f} |" for row in document["commands"]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
