"""What large inputs cost: seconds and memory of every verb that reads or writes many of something.

    python -m tests.load.load [--only TEXT] [--rows 200000] [--ranks 8] [--megabytes 50]

Each job is a process of its own; an answer is exit code 0 or 3, a refusal exit code 2 with a sentence. CPU seconds are
told beside those of the clock, since machines are shared; memory is the most that the process (not its children) held.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.load.inputs import leaderboard, measured_runs, plan, rank_traces

EXTREMES = (
    "search llama3-405b --cluster dgx-h100 --gpus 1000000 --global-batch 1000000 --seq-len 8192",
    "search llama3-8b --cluster dgx-h100 --gpus 1048576 --global-batch 1048576 --seq-len 8192",
    "search llama3-8b --cluster dgx-h100 --gpus 8..1000000 --global-batch 1024 --seq-len 8192",
    "search llama3-8b --cluster dgx-h100 --gpus 64 --global-batch 64 --seq-len 10000000",
    "search llama3-8b --cluster dgx-h100 --gpus 64 --global-batch 1000000000 --seq-len 8192",
    "search deepseek-v3 --cluster dgx-h100 --gpus 8192 --global-batch 1000000000 --seq-len 10000000",
    "simulate llama3-8b --cluster dgx-h100 --global-batch 1000000000 --seq-len 8192 --strategy tp1,dp8,mbs1",
    "simulate llama3-8b --cluster dgx-h100 --global-batch 1000000000 --seq-len 8192 --strategy pp4,dp2,mbs1"
    " --fidelity events",
    "search resnet50 --cluster abci-v100 --gpus 4096 --global-batch 1000000000",
    "scale resnet50 --cluster aws-p3dn --workers 1..1000000 --batch 32",
    "search llama3-8b --cluster dgx-h100 --gpus 64 --global-batch 64 --seq-len 8192 --tokens 1e18",
    "search llama3-8b --cluster dgx-h100 --gpus 64 --global-batch 64 --seq-len 8192 --top 1000000000",
)
"""Requests beyond any machine: 10^6 devices, 10^7 tokens, batches of 10^9."""
TRILLION = (
    "search llama3-70b --cluster dgx-h100 --gpus 8..4096 --global-batch 2048 --seq-len 4096 --framework generic"
    " --per-stage layers,recompute --sampler {} --evaluations {}"
)
"""Spaces of stages that differ: far beyond 10^12 candidates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one command cost, and how it ended."""

    job: str
    code: int
    wall_s: float
    cpu_s: float
    memory_mib: int
    said: str


def cost_of(job: str, words: list[str], folder: Path) -> Cost:
    """Run a command of forerun in a process of its own."""
    begin_s = time.monotonic()
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen([sys.executable, "-m", "forerun.search", *words], stdout=out, stderr=err)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # so that nothing waits for it again
    told = (folder / "err").read_text(errors="replace") or (folder / "out").read_text(errors="replace")
    lines = [line for line in told.splitlines() if line.strip()]
    wall_s = time.monotonic() - begin_s
    return _cost(job, process.returncode, wall_s, used, lines[-1] if lines else "")


def _cost(job: str, code: int, wall_s: float, used: resource.struct_rusage, said: str) -> Cost:
    cpu_s = used.ru_utime + used.ru_stime
    return Cost(job=job, code=code, wall_s=wall_s, cpu_s=cpu_s, memory_mib=used.ru_maxrss >> 10, said=said)


def costs(folder: Path, *, only: str, rows: int, ranks: int, megabytes: int) -> Iterator[Cost]:
    """Yield what every job costs whose name holds ``only``."""

    def run(job: str, words: str) -> Iterator[Cost]:
        if only in job:
            yield cost_of(job, [word.replace(",", " ") if word.startswith(("tp1,", "pp4,")) else word
                                for word in words.split()], folder)  # fmt: skip

    for count in (rows // 10, rows):
        name = f"validate {count:,} rows"
        if only in name:
            measured_runs(folder / "runs.csv", count)
            yield from run(name, f"validate {folder / 'runs.csv'}")
    for count in (rows // 20, rows // 2):
        name = f"report of {count:,} rows"
        if only in name:
            leaderboard(folder / f"run{count}", count)
            yield from run(name, f"report {folder / f'run{count}'}")
    for count in (ranks // 4, ranks // 2, ranks):
        name = f"replay {count} ranks x {megabytes} MB"
        if only in name:
            rank_traces(folder / f"traces{count}", count, megabytes)
            yield from run(name, f"replay {folder / f'traces{count}'}")
    for count in (200, 2000):
        name = f"sweep of {count:,} searches"
        if only in name:
            plan(folder / "plan.yaml", count)
            yield from run(name, f"sweep {folder / 'plan.yaml'} --out {folder / f'sweep{count}'} --workers serial")
    for sampler, counts in (("local", (200, 2000)),):
        for count in counts:
            yield from run(f"10^12 by {sampler}, {count} evaluations", TRILLION.format(sampler, count))
    for words in EXTREMES:
        yield from run(f"extreme: {words}", words)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="jobs whose name holds this text")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=50)
    args = parser.parse_args()
    print("| job | exit | CPU s | clock s | MiB | last words |\n|---|---:|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as name:
        for cost in costs(Path(name), only=args.only, rows=args.rows, ranks=args.ranks, megabytes=args.megabytes):
            print(f"| {cost.job} | {cost.code} | {cost.cpu_s:.1f} | {cost.wall_s:.1f} | {cost.memory_mib:,} "
                  f"| {cost.said[:150]} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
