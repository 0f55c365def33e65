"""Difference of closed forms and events on random legal splits of the operator graphs of the catalogue, and of a split
and the same split written as a strategy tree.

    python benchmarks/opgraph_agreement.py [--count 500] [--seed 31]
    python benchmarks/opgraph_agreement.py --order alexnet vgg19 --count 200      # pairs of one request in order?

Prints, by family of splits, how many were drawn, the median and largest difference of the step time, how many differ by
more than 5 %, how many one level refuses, and how many trees differ in any digit of step, parts or peak. With --order,
by network: Kendall's tau of the two levels over the splits of each request (twelve at most), pairs more than 5 % apart
by events whose order closed forms reverse, and differences of step and peak.
"""

import argparse
import itertools
import random
import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import kendalltau

from forerun.search.api import simulate_setting
from forerun.search.explore.trees.named_trees import write_tree
from forerun.search.opgraph.tree import simulate_graph_tree
from forerun.search.request.operator_graphs import OPERATOR_GRAPHS
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator.opgraph.table import SplitTable
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import graph_model_names
from forerun.spaces.opgraph.batch import PerDevice

CLUSTERS = ("abci-v100", "dgx1-v100", "dgx-a100-80", "dgx-h100", "aws-p3")
GPUS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
BATCHES = (PerDevice(8), PerDevice(32), PerDevice(64), 256)
CLOSE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One split: event-by-event over closed-form step time less one (None: refused); ``as_tree``: its tree agrees."""

    difference: float | None
    as_tree: bool


def drawn_splits(count: int, seed: int) -> dict[str, list[Drawn]]:
    """Draw legal splits and compare their two levels, by family."""
    draw, by_family = random.Random(seed), defaultdict[str, list[Drawn]](list)
    tables: dict[tuple[object, ...], SplitTable] = {}
    names = graph_model_names()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tree.yaml"
        while sum(map(len, by_family.values())) < count:
            model, cluster, gpus, batch = map(draw.choice, (names, CLUSTERS, GPUS, BATCHES))
            try:
                setting = resolve(Request(model=model, cluster=cluster, global_batch=batch, gpus=str(gpus)))
            except RequestError:  # more GPUs than the cluster has
                continue
            key = (model, cluster, gpus, batch)
            if key not in tables:
                space = setting.space()
                tables[key], _ = space.table(0, space.size)
            if not len(tables[key]):
                continue
            split = draw.choice(tables[key].splits)
            row = simulate_setting(setting, split)
            try:
                played = simulate_setting(setting, split, score=OPERATOR_GRAPHS.event_scores)
                write_tree(setting, str(split), path)
                tree, *_ = simulate_graph_tree(setting, path)
            except RequestError:
                by_family[row.graph.family].append(Drawn(difference=None, as_tree=False))
                continue
            by_family[row.graph.family].append(
                Drawn(
                    difference=played.step_time_s / row.step_time_s - 1,
                    as_tree=(tree.step_time_s, tree.breakdown_s, tree.peak_memory_gib)
                    == (played.step_time_s, played.breakdown_s, played.peak_memory_gib),
                )
            )
    return by_family


def order(model: str, count: int, seed: int) -> str:
    """Return a row of the table of orders for one network."""
    draw, taus = random.Random(f"{model} {seed}"), list[float]()
    pairs = reverse = drawn = 0
    step, peak = list[float](), list[float]()
    while drawn < count:
        cluster, gpus, batch = map(draw.choice, (CLUSTERS, GPUS[3:], BATCHES))
        try:
            setting = resolve(Request(model=model, cluster=cluster, global_batch=batch, gpus=str(gpus)))
        except RequestError:
            continue
        table, _ = setting.space().table(0, setting.space().size)
        splits = draw.sample(table.splits, min(12, len(table.splits)))
        rows = [simulate_setting(setting, split) for split in splits]
        played = [simulate_setting(setting, split, score=OPERATOR_GRAPHS.event_scores) for split in splits]
        closed, events = ([row.step_time_s for row in one] for one in (rows, played))
        drawn += len(splits)
        step += [abs(a / b - 1) for a, b in zip(closed, events, strict=True)]
        peak += [abs(a.peak_memory_gib / b.peak_memory_gib - 1) for a, b in zip(rows, played, strict=True)]
        if len(splits) > 2:
            taus.append(float(kendalltau(closed, events).statistic))
        for i, j in itertools.combinations(range(len(splits)), 2):
            pairs += 1
            far = abs(events[i] - events[j]) > CLOSE * min(events[i], events[j])
            reverse += far and (closed[i] > closed[j]) != (events[i] > events[j])
    far = sum(value > CLOSE for value in step)
    figures = (
        f"{statistics.mean(taus):.3f} | {reverse} of {pairs} | {statistics.median(step):.1%} | {far} | {max(step):.0%}"
    )
    return f"| {model} | {drawn} | {figures} | {max(peak):.1%} |"


def main() -> None:
    """Draw, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--order", nargs="+", metavar="NETWORK")
    args = parser.parse_args()
    if args.order:
        print("| network | splits | tau | reversed | step: median | over 5 % | largest | peak: largest |")
        print("|---|---|---|---|---|---|---|---|")
        for model in args.order:
            print(order(model, args.count, args.seed), flush=True)
        return
    print("| family | splits | median | largest | over 5 % | refused | other trees |\n|---|---|---|---|---|---|---|")
    by_family = drawn_splits(args.count, args.seed)
    by_family["all"] = [one for values in by_family.values() for one in values]
    for family, values in sorted(by_family.items()):
        known = [abs(one.difference) for one in values if one.difference is not None]
        far, refused = sum(value > CLOSE for value in known), len(values) - len(known)
        other = sum(not one.as_tree for one in values)
        figures = f"{statistics.median(known):.1%} | {max(known):.1%} | {far} | {refused} | {other}"
        print(f"| {family} | {len(values)} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
