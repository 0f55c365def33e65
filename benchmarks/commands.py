"""Processor seconds of whole commands, start of Python included: of this checkout and of another one, in turns.

    python benchmarks/commands.py BEFORE [--pairs N] [--only WORDS] [--out FILE.md]

``BEFORE``: the folder of the other checkout. Each command runs once unmeasured, so that modules are compiled. What
counts is user and system time, which other work on the machine disturbs less than the clock.
"""

import argparse
import datetime
import os
import platform
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parents[1]
COMMANDS = (
    "search llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 --seq-len 8192",
    "search llama3-70b --cluster dgx-h100 --gpus 64 --global-batch 256 --seq-len 8192 --trees",
    "search llama3-70b --cluster dgx-h100 --gpus 64 --global-batch 256 --seq-len 8192 --per-stage layers,recompute",
    "search llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 --seq-len 8192 --framework generic",
    "search deepseek-v3 --cluster dgx-h100 --gpus 256..2048 --global-batch 8192 --seq-len 4096",
    "search qwen3-235b-a22b --cluster dgx-h100 --gpus 98304 --global-batch 196608 --seq-len 4096",
    "explain llama3-70b --cluster dgx-h100 --global-batch 1024 --seq-len 8192 --strategy tp4,pp4,dp32,mbs1,zero1,sp",
    "list models",
    "--version",
)


def processor_s(checkout: Path, command: str) -> float:
    """Return the processor seconds of one run of a command by the packages of a checkout."""
    changed = {"PYTHONPATH": str(checkout / ".typing"), "OMP_NUM_THREADS": "1"}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "forerun.search", *command.split()],
        cwd=checkout,
        env=kept | changed,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def line(command: str, checkouts: Sequence[Path], pairs: int) -> str:
    """Return the row of one command: the medians of both checkouts and of their ratio."""
    for checkout in checkouts:
        processor_s(checkout, command)
    times = [[processor_s(checkout, command) for checkout in checkouts] for _ in range(pairs)]
    before, now = zip(*times, strict=True)
    ratio = statistics.median(own / other for other, own in times)
    least = f"{min(before):.2f} | {min(now):.2f}"
    return f"| `{command}` | {statistics.median(before):.2f} | {statistics.median(now):.2f} | {least} | {ratio:.2f} |"


def main() -> None:
    """Measure, and print or write a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default="", help="commands that have this in them")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    checkouts = (args.before.resolve(), HERE)
    revisions = [
        subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=one, capture_output=True, text=True).stdout.strip()
        for one in checkouts
    ]
    lines = [
        f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; "
        f"before {revisions[0]}, now {revisions[1]}; {args.pairs} pairs, load {os.getloadavg()[0]:.1f}",
        "",
        "| command | before, s (median) | now, s (median) | before, least | now, least | now over before |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for command in COMMANDS:
        if args.only in command:
            lines.append(line(command, checkouts, args.pairs))
            print(lines[-1], flush=True)
    if args.out is not None:
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
