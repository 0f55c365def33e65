"""How far closed forms and events are apart on random legal splits of the operator graphs of the catalogue.

    python benchmarks/opgraph_agreement.py [--count 500] [--seed 31]

Prints, by family of splits, how many were drawn, the largest difference of the step time, how many differ by more than
5 %, and how many one level refuses.
"""

import argparse
import random
import statistics
from collections import defaultdict

from forerun.search.api import simulate_setting
from forerun.search.request.kinds import OPERATOR_GRAPHS
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator.opgraph.table import SplitTable
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import graph_model_names
from forerun.spaces.opgraph.batch import PerDevice

CLUSTERS = ("abci-v100", "dgx1-v100", "dgx-a100-80", "dgx-h100", "aws-p3")
GPUS = (1, 2, 4, 8, 16, 32, 64)
BATCHES = (PerDevice(8), PerDevice(32), PerDevice(64), 256)
CLOSE = 0.05


def differences(count: int, seed: int) -> dict[str, list[float | None]]:
    """Return by family, for every split drawn, event-by-event over closed-form step time less one; None: refused."""
    draw, found = random.Random(seed), defaultdict[str, list[float | None]](list)
    tables: dict[tuple[object, ...], SplitTable] = {}
    names = graph_model_names()
    while sum(map(len, found.values())) < count:
        model, cluster, gpus, batch = map(draw.choice, (names, CLUSTERS, GPUS, BATCHES))
        request = Request(model=model, cluster=cluster, global_batch=batch, gpus=str(gpus))
        try:
            setting = resolve(request)
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
            step_s = simulate_setting(setting, split, score=OPERATOR_GRAPHS.event_scores).step_time_s
        except RequestError:
            found[row.graph.family].append(None)
        else:
            found[row.graph.family].append(step_s / row.step_time_s - 1)
    return found


def main() -> None:
    """Draw, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=31)
    args = parser.parse_args()
    print("| family | splits | median | largest | over 5 % | refused |\n|---|---|---|---|---|---|")
    found = differences(args.count, args.seed)
    found["all"] = [value for values in found.values() for value in values]
    for family, values in sorted(found.items()):
        known = [abs(value) for value in values if value is not None]
        far, refused = sum(value > CLOSE for value in known), len(values) - len(known)
        print(
            f"| {family} | {len(values)} | {statistics.median(known):.1%} | {max(known):.1%} | {far} | {refused} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
