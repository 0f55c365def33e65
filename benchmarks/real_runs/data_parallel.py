"""Real data-parallel training on hosts with limited NICs, predicted from one worker (and two for the links).

    sudo python benchmarks/real_runs/data_parallel.py [--rounds N] [--out FILE.csv] [--report FILE.md]
    python benchmarks/real_runs/data_parallel.py --from FILE.csv        (predict rows that were measured before)

Needs root, iproute2 (`ip`, `tc`), kernel support for veth, bridge and tbf, and torch (CPU, gloo). Everything it makes
is removed when it ends. A small convolutional network and a small transformer are trained for real by 1 to 4 processes
in network namespaces: synchronous all-reduce (gloo, one per stage, as soon as its gradient is there), synchronous and
asynchronous parameter servers (``parameter_server.py``, 1 or 2 shards on hosts of their own), with and without a worker
that takes 1.5 times as long. Passes are paced (``paced.py``): the device is emulated, everything else is real. Rounds
go over all variants, so that profile and targets see the same machine; the figures are medians over rounds.
"""

import argparse
import csv
import datetime
import importlib.util
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hosts import HostsError, VirtualHosts, check
from predict import Row, judged, predictions

HERE = Path(__file__).resolve().parent
WORKERS, SHARDS = 4, 2
SLOW = 1.5
ROUND_MINUTES = 3


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What one run does; ``slow`` is the factor of the last worker."""

    model: str
    mode: str
    workers: int
    shards: int = 1
    slow: float = 1.0
    steps: int = 10
    seconds: float = 5.0


def variants(model: str) -> Iterator[Variant]:
    """Yield what is measured of a model, what the profile needs first."""
    yield Variant(model=model, mode="links", workers=2)
    yield Variant(model=model, mode="all-reduce", workers=1)
    for count in (2, 3, 4):
        yield Variant(model=model, mode="all-reduce", workers=count)
    yield Variant(model=model, mode="all-reduce", workers=4, slow=SLOW)
    for mode in ("sync-ps", "async-ps"):
        for count in (1, 2, 3, 4):
            yield Variant(model=model, mode=mode, workers=count)
        yield Variant(model=model, mode=mode, workers=4, shards=2)
        yield Variant(model=model, mode=mode, workers=4, slow=SLOW)


def planned(model: str, step_s: float) -> tuple[list[tuple[float, float]], list[int]]:
    """Return seconds of every stage's passes so that a step takes about ``step_s``, and elements of every stage."""
    from paced import PacedModel

    paced = PacedModel(model)
    times = paced.measure(10)
    factor = step_s / sum(a + b for a, b in times)
    if factor < 2:
        raise SystemExit(f"{model} takes {step_s / factor:.3f} s here: too slow a machine to pace it to {step_s} s")
    return [(a * factor, b * factor) for a, b in times], [flat.numel() for flat in paced.flat]


def measure(rounds: int, rate_bits_per_s: float, step_s: float) -> list[dict[str, Any]]:
    """Run everything; return one row per variant and round, as data."""
    plans, elements = {}, {}
    for model in ("cnn", "transformer"):
        plans[model], elements[model] = planned(model, step_s)
    todo = [variant for _ in range(rounds) for model in plans for variant in variants(model)]
    with VirtualHosts([rate_bits_per_s] * (WORKERS + SHARDS)) as hosts, tempfile.TemporaryDirectory() as folder:
        schedule = Path(folder, "schedule.json")
        content = {
            "workers": WORKERS,
            "addresses": [hosts.address(host) for host in range(len(hosts))],
            "plans": plans,
            "elements": elements,
            "variants": [asdict(variant) for variant in todo],
        }
        schedule.write_text(json.dumps(content), encoding="utf-8")
        outs = [Path(folder, f"{rank}.json") for rank in range(len(hosts))]
        processes = []
        for rank, out in enumerate(outs):
            command = [sys.executable, str(HERE / "process.py"), str(rank), str(schedule), str(out)]
            environment = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
            processes.append(hosts.start(rank, command, environment=environment))
        _wait(processes)
        found = [entry for out in outs for entry in json.loads(out.read_text(encoding="utf-8"))]
    return rows(todo, found, elements, rate_bits_per_s, rounds)


def _wait(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Wait for all; the first that fails ends the run."""
    left = list(processes)
    while left:
        for process in left:
            try:
                code = process.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                continue
            if code:
                raise SystemExit(f"a process of the run ended with {code}")
            left.remove(process)
            break


def rows(
    todo: Sequence[Variant], found: list[dict[str, Any]], elements: dict[str, list[int]], rate: float, rounds: int
) -> list[dict[str, Any]]:
    """Return medians over rounds, one row per variant."""
    per_round = len(todo) // rounds
    made = []
    for place in range(per_round):
        variant = todo[place]
        runs = [[e for e in found if e["variant"] == place + per_round * turn] for turn in range(rounds)]
        row: dict[str, Any] = {
            "model": variant.model,
            "mode": variant.mode,
            "workers": variant.workers,
            "shards": variant.shards,
            "slow": variant.slow,
            "nic_bits_per_s": rate,
            "stage_bytes": json.dumps([4 * size for size in elements[variant.model]]),
        }
        if variant.mode == "links":
            first = [run[0] for run in runs]
            for key in ("sent", "reduced"):
                sizes = [size for size, _ in first[0][key]]
                middle = [statistics.median(run[key][i][1] for run in first) for i in range(len(sizes))]
                row[f"{key}_s"] = json.dumps(list(zip(sizes, middle, strict=True)))
        else:
            steps = [_step_s(run, variant) for run in runs]
            row["step_s"] = statistics.median(steps)
            row["step_s_low"], row["step_s_high"] = min(steps), max(steps)
            workers = [entry for run in runs for entry in run if "steps_s" in entry and entry["rank"] == 0]
            for key in ("forward_s", "backward_s"):
                stages = range(len(workers[0][key]))
                row[key] = json.dumps([statistics.median(w[key][i] for w in workers) for i in stages])
            if variant.mode == "all-reduce" and variant.workers == 1:
                times = [time_s for entry in workers for time_s in entry["steps_s"]]
                row["step_factors"] = json.dumps([round(t / statistics.mean(times), 4) for t in sorted(times)])
            updates = [entry["update_s"] for run in runs for entry in run if "update_s" in entry]
            row["update_s"] = statistics.median(updates) if updates else ""
        made.append(row)
    return made


def _step_s(run: list[dict[str, Any]], variant: Variant) -> float:
    """Return the step of a run: the first worker's median, or workers over the sum of their rates."""
    workers = [entry for entry in run if "steps_s" in entry]
    if variant.mode != "async-ps":
        return statistics.median(next(entry for entry in workers if entry["rank"] == 0)["steps_s"])
    return len(workers) / sum(1 / statistics.mean(_middle(entry["steps_s"])) for entry in workers)


def _middle(values: Sequence[float]) -> list[float]:
    """Leave out a tenth at both ends: steps that another process of the machine held up."""
    cut = len(values) // 10
    return sorted(values)[cut : len(values) - cut]


def report(found: Sequence[Row], source: Path, rounds: str) -> str:
    """Return the page."""
    score = judged(found)
    lines = [
        "# Real data-parallel runs against predictions",
        "",
        f"{datetime.date.today()}; {platform.machine()}, {_cpu()}, 2 shared cores, Linux {platform.release()}.",
        "Real data-parallel training on hosts with limited NICs (network namespaces, bridge, token buckets), predicted",
        "from one worker, and two for the links, by `forerun.simulator.modes`. Passes are paced (waited for), so that",
        "four workers fit on the machine; training, gradients, gloo, TCP and servers are real.",
        f"Rows: `{source.name}` ({rounds}); how: docstring of `benchmarks/real_runs/data_parallel.py`.",
        "",
        f"**Event level (the default): median error {score['median_pct']:.1f} %, worst {score['worst_pct']:.1f} %, "
        f"order of variants right in {score['order_pct']:.1f} % of {score['pairs']} pairs more than 5 % apart.**",
        f"Analytic model: median {score['coarse_median_pct']:.1f} %, worst {score['coarse_worst_pct']:.1f} %.",
        "",
        "| model | mode | workers | shards | slow | measured ms | rounds | events ms | error % | analytic | error % |",
        "|---|---|---:|---:|---:|---:|---|---:|---:|---:|---:|",
    ]
    for row in found:
        mark = " (profile)" if row.profile else ""
        cells = [f"{row.model}", f"{row.mode}{mark}", f"{row.workers}", f"{row.shards}", f"{row.slow:g}"]
        cells += [f"{1e3 * row.step_s:.1f}", f"{1e3 * row.low_s:.0f} to {1e3 * row.high_s:.0f}"]
        cells += [f"{1e3 * row.events_s:.1f}", f"{100 * row.error:+.1f}"]
        cells += [f"{1e3 * row.coarse_s:.1f}", f"{100 * row.coarse_error:+.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "Step of an asynchronous run: workers over the sum of their rates. It depends on who is where in its step:",
        "workers begin together and fall out of step over some ten steps, or do not; rounds differ accordingly.",
        "",
    ]
    return "\n".join(lines)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def main() -> None:
    """Measure or read, predict, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=300e6, help="bits per second of every NIC")
    parser.add_argument("--step", type=float, default=0.1, help="seconds that passes of one step are paced to")
    parser.add_argument("--out", type=Path, default=Path("real_runs_data_parallel.csv"))
    parser.add_argument("--report", type=Path)
    parser.add_argument("--from", dest="source", type=Path, help="predict rows that were measured before")
    args = parser.parse_args()
    if args.source is None:
        if importlib.util.find_spec("torch") is None:
            raise SystemExit("real runs need torch: pip install torch (the CPU build will do)")
        check()
        print(f"{args.rounds} rounds of about {ROUND_MINUTES} minutes each", file=sys.stderr)
        made = measure(args.rounds, args.rate, args.step)
        with args.out.open("w", newline="", encoding="utf-8") as file:
            keys = list(dict.fromkeys(key for row in made for key in row))
            writer = csv.DictWriter(file, keys, lineterminator="\n")
            writer.writeheader()
            writer.writerows(made)
    source = args.source or args.out
    with source.open(newline="", encoding="utf-8") as file:
        found = predictions(list(csv.DictReader(file)))
    text = report(found, source, f"medians of {args.rounds} rounds")
    print(text)
    if args.report is not None:
        args.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except HostsError as error:
        raise SystemExit(str(error)) from None
