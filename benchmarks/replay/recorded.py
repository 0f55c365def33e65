"""Records real trainings and holds what `replay` says of them to what they noted themselves; writes a dated page.

    python benchmarks/replay/recorded.py --python TORCH/bin/python [--kinds ddp fsdp pipeline] [--rounds 3]

Two ranks on this machine (torch on the CPU, gloo), `forerun record` around `benchmarks/replay/job.py`. Waits are
the trainings' own: from when a rank came to an exchange until the last rank did. In other rounds a rank sleeps in every
step. What recording costs is told by a run of some hundred steps under `forerun record` at its defaults.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forerun.simulator.replay import analyse_files, read_traces

JOB = Path(__file__).resolve().parent / "job.py"
FIRST, LAST, STEPS = 11, 30, 32
SLEEP_MS = 40.0
DEFAULT_STEPS = (11, 16)
"""What `forerun record` records unless told otherwise."""

Notes = list[list[dict[str, Any]]]
"""[ranks][steps] of what the ranks noted."""


def train(
    kind: str,
    folder: Path,
    args: argparse.Namespace,
    *,
    options: Sequence[str] = (),
    window: Sequence[str] = ("--steps", f"{FIRST}:{LAST}"),
) -> Notes:
    """Run a job once under the recorder, told to record ``window``, and return what the job noted."""
    launch = [args.python, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launch += ["--standalone", str(JOB), kind, "--steps", str(STEPS), "--notes", str(folder / "notes")]
    record = [sys.executable, "-m", "forerun.search", "record", "--out", str(folder / "traces"), *window]
    command = [*record, "--", *launch, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(f"{kind} failed: {done.stderr[-2000:]}")
    return [json.loads((folder / "notes" / f"{rank}.json").read_text()) for rank in range(2)]


def noted_step_s(notes: Notes) -> float:
    """Return the mean recorded step, by the jobs' own clocks."""
    return max(rank[LAST - 1]["updating"] - rank[FIRST - 2]["updating"] for rank in notes) / (LAST - FIRST + 1)


def overhead(folder: Path, kind: str, width: int, args: argparse.Namespace) -> str:
    """Return, as a table row, what `forerun record` at its defaults costs a run of so many steps: recorded steps
    against the others, and all that it added (profiler, file) against the whole."""
    options = ["--width", str(width), "--steps", str(args.steps)]
    notes = train(kind, folder, args, options=options, window=[])
    slower, whole, step_ms = [], [], []
    for rank in notes:
        cpu_s = [step["cpu"] for step in rank]
        first, last = DEFAULT_STEPS
        others = cpu_s[4 : first - 3] + cpu_s[last + 1 :]
        plain_s = statistics.median(others)
        slower.append(statistics.median(cpu_s[first - 1 : last - 1]) / plain_s - 1)  # the last one writes the file
        added_s = sum(cpu_s[first - 3 : last + 1]) - (last - first + 4) * plain_s
        whole.append(added_s / (len(cpu_s) * plain_s))
        step_ms.append(plain_s * 1e3)
    spans = statistics.mean(len(trace) for trace in read_traces([folder / "traces"])) / (last - first + 1)
    said = [statistics.mean(one) for one in (step_ms, slower, whole)]
    row = f"| {kind} | {width} | {said[0]:.1f} | {spans:.0f} | {said[1]:+.1%} | {said[2]:+.2%} |"
    print(row, file=sys.stderr)
    return row


def noted_waits_s(notes: Notes) -> list[float]:
    """Return, per rank, seconds per recorded step between coming to an exchange and the last rank's coming."""
    waits = [0.0, 0.0]
    for steps in zip(*(rank[FIRST - 1 : LAST] for rank in notes), strict=True):
        for both in zip(*(step["exchanges"] for step in steps), strict=True):
            last = max(came for came, _ in both)
            for rank, (came, went) in enumerate(both):
                waits[rank] += max(min(last, went) - came, 0.0)
    return [seconds / (LAST - FIRST + 1) for seconds in waits]


def measure(kind: str, args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the rows of one kind of training: about the replay and waits, and about the straggler."""
    waits, slow = [], []
    for turn in range(args.rounds):
        with tempfile.TemporaryDirectory() as name:
            for options in ([], ["--slow", f"1={SLEEP_MS:g}"]):
                folder = Path(name) / ("slow" if options else "equal")
                notes = train(kind, folder, args, options=options)
                analysis = analyse_files([folder / "traces"])
                noted, step_s = noted_waits_s(notes), noted_step_s(notes)
                said = [use.waiting_s for use in analysis.uses]
                pairs = " | ".join(f"{a * 1e3:.1f} | {b * 1e3:.1f}" for a, b in zip(noted, said, strict=True))
                error = analysis.replay.replayed_step_s / step_s - 1
                row = f"| {kind} | {turn + 1} | {step_s * 1e3:.0f} | {error:+.1%} | {pairs} |"
                if options:
                    found = {one.rank: one for one in analysis.stragglers}
                    words = f"{found[1].excess_s * 1e3:.1f} | {found[1].caused_s * 1e3:.1f}" if 1 in found else "- | -"
                    row += f" {(noted[0] - noted[1]) * 1e3:.1f} | {words} | {', '.join(map(str, found))} |"
                (slow if options else waits).append(row)
                print(row, file=sys.stderr)
            if args.keep is not None:
                shutil.copytree(name, args.keep / f"{kind}-{turn}")
    return waits, slow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--kinds", nargs="+", default=["ddp", "fsdp", "pipeline"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300, help="of the runs that tell what recording costs")
    parser.add_argument("--keep", type=Path, help="keep traces and notes here")
    parser.add_argument("--out", type=Path, default=Path("/dev/stdout"))
    args = parser.parse_args()
    waits, slow, costs = [], [], []
    for kind in args.kinds:
        rows = measure(kind, args)
        waits += rows[0]
        slow += rows[1]
        with tempfile.TemporaryDirectory() as name:
            costs += [overhead(Path(name) / str(width), kind, width, args) for width in (512, 1536)]
    page = "\n".join(
        [
            f"# Recorded trainings against what they noted themselves ({datetime.date.today()})",
            "",
            f"{platform.machine()}, {os.cpu_count()} cores shared with other work (load {os.getloadavg()[1]:.1f}), "
            f"Python {platform.python_version()}; `python benchmarks/replay/recorded.py`. Two ranks, torch on the CPU "
            f"with gloo, one thread each, steps {FIRST} to {LAST} recorded.",
            "",
            "*Replayed*: against the step by the trainings' own clocks. *Wait*: per rank and step.",
            "",
            "| training | round | step ms | replayed | wait of 0, noted ms | said ms | wait of 1, noted ms | said ms |",
            "|---|---|---|---|---|---|---|---|",
            *waits,
            "",
            f"The same where rank 1 sleeps {SLEEP_MS:g} ms in each step. *Later*: what rank 0 waited more than rank 1, "
            "as noted (the size of a straggler where every step ends in one exchange of both, as `ddp`). *Said*: the "
            "work that `replay` says rank 1 has more; *cost*: what it says that costs.",
            "",
            "| training | round | step ms | replayed | wait of 0, noted ms | said ms | wait of 1, noted ms | said ms | "
            "later ms | said ms | cost ms | stragglers |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|",
            *slow,
            "",
            f"What `forerun record` costs at its defaults, in processor time of a run of {args.steps} steps. *Recorded "
            f"steps*: {DEFAULT_STEPS[0]} to {DEFAULT_STEPS[1] - 1} against those before and behind. *Whole run*: all "
            "that steps took longer, with the profiler's beginning and the writing of the trace, against the whole.",
            "",
            "| training | width | step ms | spans | recorded steps | whole run |",
            "|---|---|---|---|---|---|",
            *costs,
            "",
        ]
    )
    args.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
