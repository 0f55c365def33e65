"""Predicts changes of a data-parallel training from the trace of one run, then makes them; writes a dated page.

    python benchmarks/replay/buckets.py [--rate 40] [--rounds 4] [--out FILE.md]

Two hosts with a NIC of so many Mbit/s (benchmarks/real_runs/hosts.py: needs root, iproute2 and torch), data-parallel
training of a small transformer. In each round one run with buckets of 2 MiB is read as `improve --traces` does, and
every change is predicted from it and run: other buckets, those that `improve` finds, gradients in 16 bits, another
NIC. Gains are those of a round, so that what the machine does meanwhile counts on both sides; the median counts.
"""

import argparse
import datetime
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "real_runs"))

from hosts import VirtualHosts  # noqa: E402  # a neighbour of this folder

from forerun.simulator.improve import BucketRule, LineWire, best_buckets, rule_plan, simulate  # noqa: E402
from forerun.simulator.improve.from_replay import ReplayedStep, replayed_step  # noqa: E402
from forerun.simulator.replay import analyse_files  # noqa: E402

KNOWN_MIB = 2.0


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change. ``options`` of the training, with ``rate`` times the NIC; ``predicted``: the step as `improve` has
    it."""

    name: str
    options: Callable[[ReplayedStep], Sequence[str]]
    predicted: Callable[[ReplayedStep], float]
    rate: float = 1.0


def train(rate_mbit: float, out: Path, options: Sequence[str]) -> float:
    """Run one setting on two hosts and return the median of its steps."""
    with VirtualHosts([rate_mbit * 1e6] * 2) as hosts:
        processes = []
        for rank in range(2):
            command = [sys.executable, "-W", "ignore", str(HERE / "train.py"), "dp-transformer", "--ranks", "2"]
            command += ["--out", str(out), "--rank", str(rank), "--steps", "6", *options]
            command += ["--rendezvous", f"tcp://{hosts.address(0)}:29511"]
            environment = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
            quiet = {"stdout": subprocess.DEVNULL}
            processes.append(hosts.start(rank, command, environment=environment, **quiet))
        if any(process.wait(timeout=300) for process in processes):
            raise SystemExit("a process of the run failed")
    return float(statistics.median(analyse_files([out]).replay.measured_s))


def sized(size_mib: float) -> Change:
    """Return the framework's buckets of another size."""
    size = size_mib * 2**20
    rule = BucketRule(cap_bytes=size, first_bytes=size, setting="", source="")
    return Change(
        name=f"buckets of {size_mib:g} MiB",
        options=lambda found: ["--bucket-mb", str(size_mib)],
        predicted=lambda found: simulate(found.step, rule_plan(found.step, rule)).step_s,
    )


def chosen(found: ReplayedStep) -> Sequence[str]:
    """Return the buckets that `improve` finds, as the training takes them."""
    plan = best_buckets(found.step, fuse=False)
    limits = [sum(found.step.ops[op].gradient_bytes for op in one) / 2**20 for one in plan.buckets]
    return ["--bucket-mb", str(KNOWN_MIB), "--limits-mb", *map(str, limits)]


def halved(found: ReplayedStep) -> float:
    """Return the step with half the bytes."""
    wire = found.step.wire
    assert isinstance(wire, LineWire)
    wire = replace(wire, bytes_per_s=wire.bytes_per_s * 2, host_s_per_byte=wire.host_s_per_byte / 2)
    return simulate(replace(found.step, wire=wire), found.plan).step_s


def faster(found: ReplayedStep) -> float:
    """Return the step where links move a byte in half the time."""
    return simulate(replace(found.step, wire=found.step.wire.faster(2.0)), found.plan).step_s


def known(found: ReplayedStep | None = None) -> Sequence[str]:
    """Return the options of the run that is read."""
    return ["--bucket-mb", str(KNOWN_MIB)]


CHANGES = (
    sized(0.5),
    sized(25.0),
    Change(
        name="buckets that `improve` finds",
        options=chosen,
        predicted=lambda found: simulate(found.step, best_buckets(found.step, fuse=False)).step_s,
    ),
    Change(name="gradients in 16 bits", options=lambda found: [*known(), "--half"], predicted=halved),
    Change(name="NICs twice as fast", options=known, predicted=faster, rate=2.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=40.0, help="Mbit/s of every NIC")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("/dev/stdout"))
    args = parser.parse_args()
    said: dict[str, list[float]] = {change.name: [] for change in CHANGES}
    gained: dict[str, list[float]] = {change.name: [] for change in CHANGES}
    known_s, errors, exposed = [], [], []
    with tempfile.TemporaryDirectory() as name:
        for turn in range(args.rounds):
            out = Path(name) / f"known-{turn}"
            before_s = train(args.rate, out, known())
            analysis = analyse_files([out])
            found = replayed_step(analysis, link_bytes_per_s=args.rate * 1e6 / 8)
            base_s = simulate(found.step, found.plan).step_s
            known_s.append(before_s)
            errors.append(abs(analysis.replay.error))
            exposed.append(statistics.mean(use.exposed_s for use in analysis.uses) / analysis.replay.step_s)
            for number, change in enumerate(CHANGES):
                after_s = train(args.rate * change.rate, Path(name) / f"{turn}-{number}", change.options(found))
                said[change.name].append(1 - change.predicted(found) / base_s)
                gained[change.name].append(1 - after_s / before_s)
                print(turn, change.name, said[change.name][-1], gained[change.name][-1], file=sys.stderr)
    rows = []
    for change in CHANGES:
        claim, real = statistics.median(said[change.name]), statistics.median(gained[change.name])
        spread = f"{min(gained[change.name]):.1%} to {max(gained[change.name]):.1%}"
        rows.append(f"| {change.name} | {claim:.1%} | {real:.1%} | {spread} | {100 * (claim - real):+.1f} |")
    page = "\n".join(
        [
            f"# Changes predicted from one run, and made ({datetime.date.today()})",
            "",
            f"{platform.machine()}, {os.cpu_count()} cores shared with other work (load {os.getloadavg()[2]:.1f}); two "
            f"virtual hosts with NICs of {args.rate:g} Mbit/s, torch on the CPU with gloo, {args.rounds} rounds; "
            f"`python benchmarks/replay/buckets.py`. Gains over a run with buckets of {KNOWN_MIB:g} MiB in the same "
            f"round ({statistics.median(known_s) * 1e3:.0f} ms, {statistics.mean(exposed):.0%} of it exposed "
            f"communication; replay error at most {max(errors):.2%}).",
            "",
            "| change | predicted gain | measured gain | over rounds | points apart |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )
    args.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
