"""kill -9 at random instants of every verb that writes; what is there afterwards, and after the next run.

    python -m tests.faults.kills [--kills 100] [--seed 0]

A job runs once in peace. Then it is begun, killed at an instant drawn over its length, and begun again until it ends:
its results must be those of the peaceful run bit for bit, and a file that is written whole must be the old one, or the
new one, after every kill.
"""

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path
from random import Random

from tests.faults.jobs import Job, jobs

LONGEST_S = 120.0


def _run(words: list[str]) -> None:
    """Run a command as a process of its own; nothing is printed."""
    os.environ["OMP_NUM_THREADS"] = "1"
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    from forerun.search.cli import main

    sys.exit(main(words))


def started(context: ForkServerContext, job: Job, folder: Path) -> "multiprocessing.process.BaseProcess":
    """Begin a job."""
    process = context.Process(target=_run, args=([word.replace("{folder}", str(folder)) for word in job.words],))
    process.start()
    return process


def disturbed(context: ForkServerContext, job: Job, folder: Path, random: Random, *, kills: int) -> list[str]:
    """Kill a job ``kills`` times in all; returns what was wrong."""
    found = []
    peace = folder / "peace"
    peace.mkdir(parents=True)
    job.prepare(peace)
    old = job.left(peace)
    begun_s = time.monotonic()
    process = started(context, job, peace)
    process.join(LONGEST_S)
    length_s, new = time.monotonic() - begun_s, job.left(peace)
    if process.exitcode != 0 or not new:
        return [f"{job.name} ends with {process.exitcode} in peace"]
    done = rounds = 0
    while done < kills:
        rounds += 1
        at = folder / f"round{rounds}"
        at.mkdir()
        job.prepare(at)
        while True:
            process = started(context, job, at)
            process.join(random.uniform(0, length_s) if done < kills else LONGEST_S)
            if not process.is_alive():
                break
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join()
            done += 1
            if job.whole and job.left(at) not in (old, new, {}):
                found.append(f"{job.name}: something half written is left after kill {done}")
        if process.exitcode != 0:
            found.append(f"{job.name} ends with {process.exitcode} after kills")
        elif job.left(at) != new:
            found.append(f"{job.name}: other results after kills")
        shutil.rmtree(at)
    print(f"{job.name}: {done} kills in {rounds} rounds of {length_s:.1f} s, {len(found)} failures", flush=True)
    return found


def main() -> None:
    """Kill and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["forerun.search.cli", "forerun.search.api", "forerun.search.measured.calibrate"])
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        known = jobs(Path(name) / "inputs")
        for number, job in enumerate(known):
            share = args.kills // len(known) + (number < args.kills % len(known))
            random = Random(f"{args.seed}.{job.name}")
            failures += disturbed(context, job, Path(name) / f"job{number}", random, kills=share)
    print("\n".join(failures))
    print(f"{args.kills} kills, {len(failures)} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
