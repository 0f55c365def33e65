"""Error and order of forerun against ParaDL's measured tables, and the error of ParaDL's own oracle.

    python benchmarks/paradl.py FOLDER [--write]

FOLDER holds ``paradl.csv`` (published measurements, which may not be passed on: only sums over rows are printed).
``--write`` replaces the dated result in ``results/``. Both models are given the same time per sample of one device;
"by rule" is forerun without it. ParaDL's own predictions are those printed with a row, else those of its formulas.
"""

import argparse
import csv
import dataclasses
import datetime
import os
import platform
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from forerun.simulator.opgraph import GraphContext, score_splits
from forerun.spaces.clusters import load_cluster
from forerun.spaces.opgraph import load_graph_model
from forerun.spaces.opgraph.net_file import parse_net
from forerun.spaces.opgraph.profile import load_graph_profile
from forerun.spaces.opgraph.split import parse_split

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from paradl_formulas import Oracle, abci_network
from paradl_resnet50 import SAMPLES, SECONDS_PER_SAMPLE, resnet50_net

FAMILIES = ("data+spatial", "data+filter", "data", "filter", "channel")
MODELS = {
    "ResNet-50": ("resnet50", SECONDS_PER_SAMPLE),
    "CosmoFlow": ("cosmoflow-512", 2.1081),
    "CosmoFlow-256": ("cosmoflow-256", 0.2635),
}
NOISE = 0.05
"""Measured times closer than this are not asked to be ordered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured row."""

    identity: str
    table: str
    model: str
    family: str
    gpus: int
    batch: int
    group: str
    measured_s: float
    oracle_s: float | None
    synthetic: bool

    @property
    def split(self) -> str:
        """The split in forerun's words: hybrids have four devices of a node in one replica."""
        if self.family in ("data", "filter", "channel"):
            return f"{self.family}{self.gpus}"
        return f"data{self.gpus // 4} {self.family.partition('+')[2]}4"


def cases(path: Path) -> Iterator[Case]:
    """Yield the rows of convolutional networks; profiles and transformers are left out."""
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            identity, model = row["case_id"], row["model_name"]
            if "profile" in identity or "Megatron" in model:
                continue
            if "CosmoFlow256" in identity:
                model = "CosmoFlow-256"
            elif "CosmoFlow" in model:
                model = "CosmoFlow"
            named = re.search(r"_(data\+spatial|data\+filter|data|filter|channel)_", identity)
            family = named[1] if named else "data+spatial"
            printed = row["sim_ref_iter_ms"]
            yield Case(
                identity=identity,
                table=identity.split("_")[1],
                model=model,
                family=family,
                gpus=int(row["gpus"]),
                batch=int(float(row["global_batch"])),
                group=row["rank_group"],
                measured_s=float(row["measured_iter_ms"]) / 1e3,
                oracle_s=float(printed) / 1e3 if printed else None,
                synthetic="synthetic" in row["notes"],
            )


def own_s(case: Case, *, measured: bool) -> float:
    """Return forerun's step time, with or without the measured time per sample."""
    name, seconds = MODELS[case.model]
    return step_s(name, seconds if measured else None, case.split, case.batch, loads=not case.synthetic)


def step_s(name: str, seconds_per_sample: float | None, split: str, batch: int, *, loads: bool = True) -> float:
    """Return forerun's step time on ABCI; ``loads``: whether samples are read from storage."""
    profile = load_graph_profile("chainermn")
    context = GraphContext(
        model=load_graph_model(name),
        cluster=load_cluster("abci-v100"),
        profile=profile if loads else dataclasses.replace(profile, storage_bytes_per_s=None),
        precision="fp32",
        seconds_per_sample=seconds_per_sample,
    )
    return float(score_splits(context, [parse_split(split)], [batch]).step_time_s[0])


def oracle_s(case: Case) -> float | None:
    """Return ParaDL's step time: as printed, else by its formulas (ResNet-50), else None."""
    if case.oracle_s is not None:
        return case.oracle_s
    if case.model != "ResNet-50":
        return None
    net = parse_net(resnet50_net(), source="resnet50.net")
    oracle = Oracle(
        layers=net.layers,
        samples=SAMPLES,
        seconds_per_sample=SECONDS_PER_SAMPLE,
        split=frozenset(layer.name for layer in net.layers if layer.kind == "CONV"),
        network=abci_network(cable_s=20e-6),
    )
    nodes = case.gpus // 4
    match case.family:
        case "data":
            cost = oracle.data(case.gpus, case.batch // case.gpus)
        case "filter" | "channel":
            cost = oracle.filter(case.gpus, case.batch)
        case "data+filter":
            cost = oracle.data_filter(case.gpus, case.batch // nodes)
        case _:
            cost = oracle.data_spatial(case.gpus, case.batch // nodes)
    return cost.total_s / (SAMPLES / case.batch)


def error(predicted: float, measured: float) -> float:
    """Return the share by which a prediction misses."""
    return abs(predicted / measured - 1.0)


def orders(measured: list[Case], predicted: dict[str, float]) -> tuple[int, int, list[str]]:
    """Count pairs in the right order and all pairs, and list the reversed ones.

    Seconds per sample are compared within each group; pairs of a filter and a channel split are left out.
    """
    right, asked, wrong = 0, 0, []
    for one, other in combinations(measured, 2):
        if not one.group or one.group != other.group or {one.family, other.family} == {"filter", "channel"}:
            continue
        true_s = [case.measured_s / case.batch for case in (one, other)]
        if max(true_s) < (1 + NOISE) * min(true_s):
            continue
        guess = [predicted[case.identity] / case.batch for case in (one, other)]
        asked += 1
        if (true_s[0] < true_s[1]) == (guess[0] < guess[1]):
            right += 1
        else:
            wrong.append(f"{one.identity} / {other.identity}")
    return right, asked, wrong


def report(measured: list[Case]) -> str:
    """Return the result as text."""
    own = {case.identity: own_s(case, measured=True) for case in measured}
    rule = {case.identity: own_s(case, measured=False) for case in measured}
    oracle = {case.identity: value for case in measured if (value := oracle_s(case)) is not None}
    lines = [
        "# forerun and ParaDL's oracle against ParaDL's measured tables",
        "",
        f"{datetime.date.today()}, Python {platform.python_version()}, {os.cpu_count()} cores "
        f"({platform.machine()}). Mean absolute error of the step time; "
        f"{len(measured)} measured rows on ABCI (V100, four",
        "a node). `paradl` is the oracle itself, fed with the same time per sample as `forerun`; `by rule` is forerun",
        "without that time.",
        "Constants of the profile `chainermn` (eight numbers) were fitted to these rows and to VGG-16 below by",
        "`benchmarks/fit/chainermn.py`; its page, dated alike, has the errors of what is left out.",
        "ParaDL's constants are those of the network's data sheet.",
        "",
        "| table | model | strategy | rows | paradl | forerun | by rule |",
        "|---|---|---|---|---|---|---|",
    ]
    keys = dict.fromkeys((case.table, case.model, case.family) for case in measured)
    for key in keys:
        rows = [case for case in measured if (case.table, case.model, case.family) == key]
        means = " | ".join(_mean(rows, values) for values in (oracle, own, rule))
        lines.append(f"| {' | '.join(key)} | {len(rows)} | {means} |")
    both = [case for case in measured if case.identity in oracle]
    lines.append(f"| all | | | {len(measured)} | | {_mean(measured, own)} | {_mean(measured, rule)} |")
    lines.append(
        f"| where paradl has a prediction | | | {len(both)} | {_mean(both, oracle)} | {_mean(both, own)} | "
        f"{_mean(both, rule)} |"
    )
    medians = [
        statistics.median(error(values[case.identity], case.measured_s) for case in both)
        for values in (oracle, own, rule)
    ]
    lines.append("| median of these | | | | " + " | ".join(f"{value:.1%}" for value in medians) + " |")
    right, asked, wrong = orders(measured, own)
    lines += [
        "",
        f"Order within groups of equal GPU counts (seconds per sample, pairs more than {NOISE:.0%} apart, filter",
        f"against channel left out): {right} of {asked} pairs right.",
        *(f"- not: {pair}" for pair in wrong),
        "",
    ]
    return "\n".join(lines)


def _mean(rows: list[Case], predicted: dict[str, float]) -> str:
    errors = [error(predicted[case.identity], case.measured_s) for case in rows if case.identity in predicted]
    return f"{statistics.mean(errors):.1%}" if errors else "-"


VGG = {
    # Measured and predicted seconds per epoch of 1.28 million images, by GPUs: data+filter, 64 samples a node.
    32: (2307.0, 2500.0),
    64: (1156.0, 1287.0),
    128: (607.0, 655.0),
    256: (313.0, 332.0),
}
"""ParaDL, table 8: VGG-16. Its data+spatial rows do not state their batch; as 20 images a node, which
ParaDL's own prediction implies, they took part in the fit at a small weight. Its filter and channel rows (over 4 s a
step, five times what either model says) compute for longer than one GPU would (channel: 38 ms an image against 8): no
exchange explains that; 64 images, which its data-parallel runs do not use either, look like memory that did not fit."""

VGG_SECONDS_PER_SAMPLE = 328.0 * 32 / SAMPLES
"""The one-device time behind the printed prediction of data+spatial on 32 GPUs, which divides it evenly."""


def vgg_lines() -> list[str]:
    """Return the comparison for VGG-16."""
    lines = [
        "",
        "VGG-16, data+filter with 64 images a node (ParaDL, table 8):",
        "",
        "| GPUs | paradl | forerun |",
        "|---|---|---|",
    ]
    for gpus, (measured, printed) in VGG.items():
        batch = 64 * gpus // 4
        epoch = step_s("vgg16", VGG_SECONDS_PER_SAMPLE, f"data{gpus // 4} filter4", batch) * SAMPLES / batch
        lines.append(f"| {gpus} | {printed / measured - 1:+.1%} | {epoch / measured - 1:+.1%} |")
    return [*lines, ""]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="replace the dated result")
    options = parser.parse_args()
    rows = list(cases(options.folder / "paradl.csv"))
    known = [case for case in rows if case.model in MODELS]
    if unknown := sorted({case.model for case in rows} - {case.model for case in known}):
        print(f"left out, of no network with a time per sample: {', '.join(unknown)}", file=sys.stderr)
    text = report(known) + "\n".join(vgg_lines())
    print(text)
    if options.write:
        (Path(__file__).parent / "results" / f"{datetime.date.today()}-paradl.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
