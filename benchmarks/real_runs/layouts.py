"""Real runs of one model under many splits, predicted from operators of one rank and messages between two.

    sudo python benchmarks/real_runs/layouts.py [--rounds N] [--out FILE.csv] [--report FILE.md]
    python benchmarks/real_runs/layouts.py --from FILE.csv        (predict rows that were measured before)

Needs root, iproute2 (`ip`, `tc`) and torch (CPU, gloo). A small language model is trained by 1 to 4 processes in
network namespaces (``hosts.py``) with data, tensor and pipeline parallelism. What is real: processes, training,
gradients, gloo, TCP and the limited NICs; the device is emulated (``emulated.py``): every operator is computed and then
waited for. What predictions see: the operators that forerun asks for, timed on one rank, and collectives of two ranks;
both go through the same profile as ``forerun profile`` writes. Rounds go over everything, so that profile and targets
see the same machine; the figures are medians over rounds.
"""

import argparse
import csv
import datetime
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from hosts import VirtualHosts

from forerun.search.measured.profiling import Line, Profile, operators_of
from forerun.search.measured.profiling.messages import MeasuredCollective
from forerun.simulator import score
from forerun.simulator.costs import collective_time_s
from forerun.simulator.events import event_scores, simulate
from forerun.spaces.clusters import resolve_cluster
from forerun.spaces.frameworks import load_framework
from forerun.spaces.models import transformer
from forerun.spaces.strategies import Context, Strategy, table_of
from forerun.spaces.workload import Workload

HERE = Path(__file__).resolve().parent
RANKS, BATCH = 4, 16
HIDDEN, LAYERS, HEADS, VOCAB, LENGTH = 64, 4, 4, 1024, 256
SIZES = tuple(1 << shift for shift in range(10, 23))
APART = 0.10
CLUSTER = """\
title: namespaces on one machine
device:
  name: emulated
  memory: 8GiB
  memory_rate: 10GB/s
  peak: {{fp32: 50TFLOP/s}}
  compute_units: 1
  matmul_ceiling: {{fp32: 0.9}}
  memory_efficiency: 0.8
  host_rate: 5GB/s
devices_per_node: 1
max_devices: 4
scale_up: none
network: {{kind: ethernet, nics_per_node: 1, nic_rate: {rate:.6g}Mb/s}}
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One strategy: its measured step (median, and lowest and highest of the rounds) and both predictions."""

    strategy: str
    ranks: int
    step_s: float
    low_s: float
    high_s: float
    closed_s: float
    events_s: float
    busy_error: float
    """Largest relative error of the busy time of a rank's device."""

    @property
    def error(self) -> float:
        """Of the closed forms, relative."""
        return self.closed_s / self.step_s - 1


def strategies() -> Iterator[Strategy]:
    """Yield the strategies that are run."""
    for dp, tp, pp in ((1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 1), (1, 4, 1), (1, 1, 2), (1, 1, 4)):
        yield Strategy(dp=dp, tp=tp, pp=pp, mbs=2)
    for dp, tp, pp in ((2, 2, 1), (2, 1, 2), (1, 2, 2)):
        yield Strategy(dp=dp, tp=tp, pp=pp, mbs=2)
    for dp, tp, pp, mbs in ((1, 2, 1, 8), (1, 1, 2, 4), (1, 1, 4, 1), (2, 2, 1, 4), (2, 1, 2, 1), (1, 2, 2, 4)):
        yield Strategy(dp=dp, tp=tp, pp=pp, mbs=mbs)


def request(rate_bits_per_s: float) -> Context:
    """Return the request that is predicted: the model, the namespaces, and a trainer that overlaps only its hops."""
    model = transformer(
        "small",
        layers=LAYERS,
        hidden=HIDDEN,
        ffn_hidden=4 * HIDDEN,
        heads=HEADS,
        vocab=VOCAB,
        gated=False,
        norm_bias=True,
        learned_positions=LENGTH,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "namespaces.yaml")
        path.write_text(CLUSTER.format(rate=rate_bits_per_s / 1e6), encoding="utf-8")
        cluster = resolve_cluster(str(path))
    trainer = replace(
        load_framework("megatron-lm"),
        overlap_gradients=0.0,
        overlap_parameters=0.0,
        overlap_tensor=0.0,
        overlap_tensor_backward=0.0,
        host_layer_s=0.0,
        host_step_s=0.0,
        host_microbatch_s=0.0,
        collective_launch_s=0.0,
    )
    workload = Workload(global_batch=BATCH, seq_len=LENGTH, precision="fp32")
    return Context(model=model, cluster=cluster, workload=workload, framework=trainer)


def measure(rounds: int, rate: float, steps: int) -> list[dict[str, Any]]:
    """Run everything; return rows as the CSV holds them."""
    operators = operators_of(request(rate), list(strategies()))
    messages = [(kind, size, 2, 1) for size in SIZES for kind in ("all_reduce", "send_recv")]
    one_round: list[dict[str, Any]] = [
        {"what": "operators", "operators": [(one.name, one.shape) for one in operators]},
        {"what": "messages", "messages": messages, "steps": 9},
    ]
    for s in strategies():
        one_round.append(
            {"what": "train", "dp": s.dp, "tp": s.tp, "pp": s.pp, "mbs": s.mbs, "batch": BATCH, "steps": steps}
        )
    found = _run([variant for _ in range(rounds) for variant in one_round], rate)
    rows: list[dict[str, Any]] = []
    for place, variant in enumerate(one_round):
        runs = [e for e in found if e["variant"] % len(one_round) == place and e["rank"] == 0]
        if variant["what"] == "train":
            steps_s = [run["median_s"] for run in runs]
            name = str(list(strategies())[place - 2])
            rows.append(_row("step", name, [], steps_s))
            for rank in range(list(strategies())[place - 2].devices):
                own = [e for e in found if e["variant"] % len(one_round) == place and e["rank"] == rank]
                rows.append(_row("busy", name, [rank], [run["busy_s"] for run in own]))
        else:
            keys = [(o.name, o.shape) for o in operators] if variant["what"] == "operators" else messages
            for at, key in enumerate(keys):
                times = [run["seconds"][at] for run in runs]
                kind, shape = (key[0], key[1]) if variant["what"] == "operators" else (key[0], key[1:])
                rows.append(_row(variant["what"], str(kind), list(shape), times))
    return [{**row, "nic_bits_per_s": rate} for row in rows]


def _row(what: str, name: str, shape: Sequence[float], times: Sequence[float]) -> dict[str, Any]:
    return {
        "what": what,
        "name": name,
        "shape": " ".join(f"{value:g}" for value in shape),
        "seconds": statistics.median(times),
        "low_s": min(times),
        "high_s": max(times),
        "rounds": len(times),
    }


def _run(variants: Sequence[dict[str, Any]], rate: float) -> list[dict[str, Any]]:
    """Run a schedule on hosts of their own and return what all ranks measured."""
    with VirtualHosts([rate] * RANKS) as hosts, tempfile.TemporaryDirectory() as folder:
        schedule, outs = Path(folder, "schedule.json"), [Path(folder, f"{rank}.json") for rank in range(RANKS)]
        addresses = [hosts.address(host) for host in range(RANKS)]
        content = {"addresses": addresses, "ranks": RANKS, "variants": list(variants)}
        schedule.write_text(json.dumps(content), encoding="utf-8")
        processes = []
        for rank, out in enumerate(outs):
            command = [sys.executable, str(HERE / "split_process.py"), str(rank), str(schedule), str(out)]
            environment = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
            processes.append(hosts.start(rank, command, environment=environment))
        for process in processes:
            if code := process.wait():
                raise SystemExit(f"a process of the run ended with {code}")
        return [entry for out in outs for entry in json.loads(out.read_text(encoding="utf-8"))]


def predicted(rows: Sequence[dict[str, Any]]) -> list[Row]:
    """Predict every strategy from the profile rows."""
    context = request(float(rows[0]["nic_bits_per_s"]))
    known = {one.key: one for one in operators_of(context, list(strategies()))}
    operators, collectives = [], []
    for row in rows:
        shape = tuple(float(value) for value in str(row["shape"]).split())
        seconds = float(row["seconds"])
        if row["what"] == "operators":
            one = known.get(f"{row['name']} {row['shape']}")
            if one is not None:
                operators.append(Line(name=one.name, shape=shape, seconds=seconds, spread=0.0, fitted_s=one.fitted_s))
        elif row["what"] == "messages":
            message = MeasuredCollective(
                kind=row["name"], full_bytes=int(shape[0]), ranks=int(shape[1]), stride=int(shape[2])
            )
            fitted = float(collective_time_s(context.cluster, row["name"], *shape))
            name = f"{message.kind} network"
            collectives.append(Line(name=name, shape=shape, seconds=seconds, spread=0.0, fitted_s=fitted))
    profile = Profile(
        source="profile", device="emulated", made={}, operators=tuple(operators), collectives=tuple(collectives),
        skipped={},
    )  # fmt: skip
    profiled, _ = profile.applied(context)
    table = table_of(list(strategies()))
    closed, events = score(profiled, table), event_scores(profiled, table)
    measured = {row["name"]: row for row in rows if row["what"] == "step"}
    result = []
    for place, strategy in enumerate(strategies()):
        row = measured[str(strategy)]
        result.append(
            Row(
                strategy=str(strategy),
                ranks=strategy.devices,
                step_s=float(row["seconds"]),
                low_s=float(row["low_s"]),
                high_s=float(row["high_s"]),
                closed_s=float(closed.step_time_s[place]),
                events_s=float(events.step_time_s[place]),
                busy_error=_busy_error(profiled, strategy, rows),
            )
        )
    return result


def _busy_error(context: Context, strategy: Strategy, rows: Sequence[dict[str, Any]]) -> float:
    """Return the largest relative error of the time that a rank's device is busy."""
    stages, per_stage = simulate(context, strategy).stages, strategy.tp * strategy.dp
    errors = [
        stages[int(row["shape"]) // per_stage].busy_s / float(row["seconds"]) - 1
        for row in rows
        if row["what"] == "busy" and row["name"] == str(strategy)
    ]
    return max(errors, key=abs, default=float("nan"))


def judged(rows: Sequence[Row]) -> dict[str, float]:
    """Return errors and order of what was predicted (not of the single rank that was profiled)."""
    targets = [row for row in rows if row.ranks > 1]
    figures: dict[str, float] = {"rows": len(targets)}
    for name in ("closed", "events"):
        errors = sorted(abs(getattr(row, f"{name}_s") / row.step_s - 1) for row in targets)
        figures[f"{name}_median_pct"] = 100 * statistics.median(errors)
        figures[f"{name}_worst_pct"] = 100 * errors[-1]
        pairs = [
            (a, b) for a, b in combinations(targets, 2) if max(a.step_s, b.step_s) / min(a.step_s, b.step_s) - 1 > APART
        ]
        right = [(getattr(a, f"{name}_s") < getattr(b, f"{name}_s")) == (a.step_s < b.step_s) for a, b in pairs]
        figures["pairs"], figures[f"{name}_order_pct"] = len(pairs), 100 * sum(right) / len(right)
    return figures


def report(rows: Sequence[Row], source: str, rate: float) -> str:
    """Return the page."""
    figures = judged(rows)
    lines = [
        "# Real splits of a small model against predictions",
        "",
        "    sudo python benchmarks/real_runs/layouts.py",
        "",
        f"{datetime.date.today()}; {platform.machine()}, Python {platform.python_version()}, 2 shared cores, Linux "
        f"{platform.release()}; NICs of {rate / 1e6:g} Mbit/s. Rows: `{source}`.",
        "",
        "Training of a small language model by 1 to 4 processes (torch, gloo) in network namespaces, split by data,",
        "tensor and pipeline, predicted from its operators on one rank and collectives between two, through a profile.",
        "The device is emulated (every operator is computed, then waited for); processes, gradients, gloo, TCP and",
        "NICs are real.",
        "",
        "| | asked | closed forms | event by event |",
        "|---|---|---|---|",
    ]
    for title, asked, name in (
        ("median error %", "under 8", "median_pct"),
        ("worst error %", "under 20", "worst_pct"),
        (f"pairs more than {APART:.0%} apart ordered right %", "100", "order_pct"),
    ):
        lines.append(f"| {title} | {asked} | {figures[f'closed_{name}']:.1f} | {figures[f'events_{name}']:.1f} |")
    busy = max(abs(row.busy_error) for row in rows)
    lines.append(f"| busy time of a rank, worst error % | under 8 | | {100 * busy:.1f} |")
    lines += ["", f"{figures['rows']:.0f} strategies of several ranks, {figures['pairs']:.0f} such pairs.", ""]
    lines += ["| strategy | ranks | measured ms | rounds | closed ms | error % | events ms | error % | busy % |"]
    lines += ["|---|---:|---:|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        mark = " (profiled)" if row.ranks == 1 else ""
        cells = [row.strategy + mark, str(row.ranks), f"{1e3 * row.step_s:.0f}"]
        cells += [f"{1e3 * row.low_s:.0f} to {1e3 * row.high_s:.0f}", f"{1e3 * row.closed_s:.0f}"]
        cells += [
            f"{100 * row.error:+.1f}",
            f"{1e3 * row.events_s:.0f}",
            f"{100 * (row.events_s / row.step_s - 1):+.1f}",
        ]
        cells.append(f"{100 * row.busy_error:+.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure (or read), predict, report."""
    results, today = HERE.parent / "results", datetime.date.today()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rate", type=float, default=200e6, help="bits per second of every NIC (2e8)")
    parser.add_argument(
        "--from", dest="rows", type=Path, metavar="FILE.csv", help="predict these rows, measure nothing"
    )
    parser.add_argument("--out", type=Path, default=results / f"{today}-layouts.csv")
    parser.add_argument("--report", type=Path, default=results / f"{today}-layouts.md")
    args = parser.parse_args()
    if args.rows is None:
        found = measure(args.rounds, args.rate, args.steps)
        with args.out.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, fieldnames=list(found[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
    source = args.rows or args.out
    with source.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    page = report(predicted(rows), source.name, float(rows[0]["nic_bits_per_s"]))
    args.report.write_text(page, encoding="utf-8")
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
