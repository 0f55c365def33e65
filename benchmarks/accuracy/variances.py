"""Fit the standard deviations of prediction errors, so that 80 % intervals hold in every situation of a user.

    python benchmarks/accuracy/variances.py DIR [--rounds N] [--check]

DIR holds CSV files of the schema in docs/measured-runs.md. Writes search/measured/intervals/data/variances.yaml.
Groups, models of a source, sources, devices, frameworks, frameworks on a device, kinds of run, and devices together
with frameworks are left out in turn; ``goal`` has the share of left-out runs that is to be within their interval. Where
other runs of a source are known, runs count as they are predicted now. Elsewhere runs of kinds that had no measured run
count as they were predicted before any of them was used (``first_predictions.csv``). With --check nothing is written:
it prints the shares that the present values reach. Takes four minutes of one core.
"""

import argparse
import datetime
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
from left_out import Sample, believed, first_predictions, left_out, sample_of, situations, tests_only

from forerun.search.measured.intervals.cells import Floats
from forerun.search.measured.intervals.variance import Variances, variances
from forerun.search.measured.validate import load_runs, predict

TARGET = Path(__file__).resolve().parents[2] / "search" / "measured" / "intervals" / "data" / "variances.yaml"
KNOWN, UNKNOWN, NEW, LEAST = (0.82, 0.84), (0.8, 0.92), (0.8, 0.8), 0.7
"""Least and greatest share of runs within their interval: where other runs of their source are known; where not; of
kinds and vendors without any run. Shares may exceed 80 % as constants of forerun were fitted to the runs: errors of
runs that were kept back are larger by an eighth (4.9 against 5.6 % in the median). ``LEAST``: of tables of ``MANY``
runs."""
MANY = 20
OF_TABLES = ("group", "model of a source")
"""Situations in which every large table is looked at: other runs of it are known."""
FIRST_SEEN = ("step",)
"""Quantities whose values are fitted to first predictions. Those of memory are not: they lacked parts that frameworks
document and that no run was needed for (whole logits, bf16 states, DeepSpeed's buckets)."""
EDGE = 0.02
"""Runs this close to the end of their interval count in part, so that shares change smoothly."""
TOLERANCE, NARROW, NEAR_START = 0.03, 30.0, 0.3
"""Points of share that cost 1; cost of a mean logarithm of width; cost of leaving the first guess e-fold."""
GUESS: Mapping[str, Mapping[str, float]] = {
    "step": {
        "own_device": 0.03, "lent_device": 0.1, "vendor": 0.25, "framework": 0.05, "framework_on_device": 0.04,
        "mechanism": 0.06, "kind": 0.04, "table": 0.03, "local": 0.05, "scatter": 0.05, "guessed": 0.1,
        "waiting": 0.1, "rough_waiting": 1.3, "rough_experts": 0.3, "prior": 6.0,
    },
    "memory": {
        "own_device": 0.02, "lent_device": 0.03, "vendor": 0.03, "framework": 0.06, "framework_on_device": 0.03,
        "mechanism": 0.08, "kind": 0.04, "table": 0.05, "local": 0.05, "scatter": 0.04, "guessed": 0.1,
        "waiting": 0.03, "rough_waiting": 0.3, "rough_experts": 0.3, "prior": 6.0,
    },
}  # fmt: skip
"""Where the search begins, and what a value that no run decides stays near."""


def main() -> int:
    """Fit, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=4, help="passes over all values")
    parser.add_argument("--afresh", action="store_true", help="begin at the first guess, not at the present values")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--results", type=Path, metavar="FILE.md", help="also write the shares as a page")
    args = parser.parse_args()
    predictions = predict(load_runs(sorted(args.folder.glob("*.csv"))).runs)
    chosen: dict[str, Variances] = {}
    lines: list[str] = []
    for quantity in ("step", "memory"):
        now = sample_of(predictions, quantity)
        first = sample_of(predictions, quantity, first=True) if quantity in FIRST_SEEN else now
        chosen[quantity] = (
            variances(quantity) if args.check else fitted((now, first), quantity, args.rounds, afresh=args.afresh)
        )
        if first is not now:
            lines += [f"## {quantity.capitalize()}, new kinds as first predicted", ""]
            lines += [*shares(first, judge_of(first), chosen[quantity]), ""]
        lines += [f"## {quantity.capitalize()}, all runs as predicted now", ""]
        lines += [*shares(now, judge_of(now), chosen[quantity]), ""]
    print("\n".join(lines), flush=True)
    if args.results:
        args.results.write_text("\n".join([*_head(), *lines]), encoding="utf-8")
    if not args.check:
        TARGET.write_text(_written(chosen), encoding="utf-8")
        print(f"wrote {TARGET.name}")
    return 0


Judge = Mapping[str, Mapping[str, Floats]]
"""Weights of runs by situation and by what is judged."""


def judge_of(sample: Sample) -> Judge:
    """Return how much every run counts in every share that is looked at."""
    tables = np.array([run.file for run in sample.runs])
    counted = ~np.array([tests_only(run) for run in sample.runs])
    _, place, size = np.unique(tables, return_inverse=True, return_counts=True)
    of_table = size[place]
    kinds = [sample.points.kinds[at] for at in sample.cell]
    new = {name.rpartition("-")[0] for name in first_predictions()}
    parts = {
        "new kinds": np.where(np.isin(tables, list(new)), 1.0 / of_table, 0.0),
        "experts": counted * np.array([float(kind.experts) for kind in kinds]),
        "other vendors": np.array([float(kind.constants == "foreign") for kind in kinds]),
        "gathered by layer": counted * np.array([float(kind.by_layer) for kind in kinds]),
    }
    parts |= {f"table {name}": (tables == name).astype(float) for name in np.unique(tables[of_table >= MANY])}
    parts = {name: weight for name, weight in parts.items() if (weight > 0).sum() >= MANY}
    judge: dict[str, dict[str, Floats]] = {}
    for one in situations(sample):
        block = one.judged[sample.cell]
        inside = np.bincount(block, counted.astype(float))[block]
        judge[one.name] = {
            "all": counted.astype(float),
            "blocks": np.where(counted, 1.0 / np.sqrt(np.maximum(inside, 1.0)), 0.0),
        }
        if one.name in OF_TABLES:
            judge[one.name] |= parts
        elif one.name != "kind of run":
            judge[one.name] |= {name: weight for name, weight in parts.items() if not name.startswith("table ")}
    return judge


def fitted(samples: tuple[Sample, Sample], quantity: str, rounds: int, *, afresh: bool) -> Variances:
    """Return the values of the lowest cost, found by steps along one at a time.

    The first sample is judged where other runs of a source are known, the second elsewhere.
    """
    now, first = ((sample, judge_of(sample)) for sample in samples)
    names = [one.name for one in fields(Variances)]
    start = np.log([GUESS[quantity][name] for name in names])
    values = start if afresh else np.log([getattr(variances(quantity), name) for name in names])

    def cost(logs: Floats) -> float:
        sizes = Variances(**dict(zip(names, np.exp(logs).tolist(), strict=True)))
        near = NEAR_START * float(np.square(logs - start).sum())
        return _cost(*now, sizes, known=True) + _cost(*first, sizes, known=False) + near

    best, step, began = cost(values), np.full(len(names), 0.4), time.perf_counter()
    for turn in range(rounds):
        for place in range(len(names)):
            for sign in (1.0, -1.0):
                tried = values.copy()
                tried[place] += sign * step[place]
                if (other := cost(tried)) < best - 1e-3:
                    best, values = other, tried
                    break
            else:
                step[place] *= 0.6
        print(f"{quantity}, round {turn + 1}: cost {best:.2f}, {time.perf_counter() - began:.0f} s", flush=True)
    return Variances(**{name: float(f"{value:.3g}") for name, value in zip(names, np.exp(values), strict=True)})


def goal(situation: str, name: str) -> tuple[float, float]:
    """Return the least and the greatest share of runs within their interval that cost nothing."""
    if situation in OF_TABLES:
        return KNOWN
    return NEW if name in ("new kinds", "other vendors") else UNKNOWN


def _cost(sample: Sample, judge: Judge, sizes: Variances, *, known: bool) -> float:
    """Return the cost of the situations in which other runs of a source are known, or of the others."""
    everything = situations(sample)
    cells, total = believed(sample, sizes), 0.0
    for one in everything:
        if (one.name in OF_TABLES) is not known:
            continue
        mean, half = left_out(cells, one)
        inside = 1.0 / (1.0 + np.exp(-np.clip((half - np.abs(sample.error - mean)) / EDGE, -30, 30)))
        tables = [LEAST]
        for name, weight in judge[one.name].items():
            share = float(np.average(inside, weights=weight))
            if name.startswith("table "):
                tables.append(share)
                continue
            least, most = goal(one.name, name)
            total += ((min(share - least, 0.0) + max(share - most, 0.0)) / TOLERANCE) ** 2
        total += ((min(tables) - LEAST) / TOLERANCE) ** 2
        width = float(np.average(np.log(half), weights=judge[one.name]["blocks"]))
        total += NARROW * width / len(everything)
    return total


COLUMNS = ("all", "blocks", "new kinds", "other vendors", "experts", "gathered by layer")


def shares(sample: Sample, judge: Judge, sizes: Variances) -> list[str]:
    """Return a table of the share of runs within their interval by what is left out, and their half width."""
    known = believed(sample, sizes)
    names = [name for name in COLUMNS if any(name in weights for weights in judge.values())]
    lines = [f"| left out | {' | '.join(names)} | least of a table | half width |", "|---" * (len(names) + 3) + "|"]
    for one in situations(sample):
        mean, half = left_out(known, one)
        inside = np.abs(sample.error - mean) <= half
        figures = {name: 100 * float(np.average(inside, weights=w)) for name, w in judge[one.name].items()}
        tables = {name.removeprefix("table "): share for name, share in figures.items() if name.startswith("table ")}
        least = min(tables, key=tables.__getitem__, default="")
        cells = [f"{figures[name]:.0f}" if name in figures else "" for name in names]
        cells.append(f"{tables[least]:.0f} ({least})" if tables else "")
        cells.append(f"{100 * np.expm1(np.median(half[judge[one.name]['all'] > 0])):.0f}")
        lines.append(f"| {one.name} | {' | '.join(cells)} |")
    return lines


def _head() -> list[str]:
    """Return the lines above the tables of a page of results."""
    return [
        f"# 80 % intervals, {datetime.date.today().isoformat()}",
        "",
        "Share of runs (%) within their 80 % interval when what the first column names is left out in turn, by",
        f"`benchmarks/accuracy/variances.py` on {platform.machine()}, one core. *All*: every run but functional tests",
        "of tiny models; *blocks*: each device, framework, ... counts the root of its runs; *new kinds*: sources",
        "without any run of their kind before 26 November 2026, each source the same; *other vendors*: devices for",
        "which no micro-benchmark was fitted; *least of a table*: of tables of 20 runs or more; half width: median, %",
        "of the step. *As first predicted*: runs of new kinds as they were predicted at commit 09fbb12f, before any of",
        "them was used.",
        "",
    ]


def _written(chosen: Mapping[str, Variances]) -> str:
    """Return the values as a YAML document."""
    lines = [
        "# Standard deviations of the logarithm of measured over predicted (their meaning:",
        "# search/measured/intervals/variance.py). Written by benchmarks/accuracy/variances.py.",
    ]
    for quantity, sizes in chosen.items():
        lines += [f"{quantity}:", *(f"  {name}: {value:g}" for name, value in asdict(sizes).items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
