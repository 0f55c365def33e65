"""What exploring stages that differ finds, how fast, and with how many evaluations.

    python benchmarks/exploration.py [--seeds 20] [--others 3] [--trials 300] [--only large,reduced,curves]

Llama 3 70B on 128 H100s with uneven stages, recompute per stage and tp per half. *large*: the whole space, with each
seed. *reduced*: spaces that are looked at candidate by candidate, and what the sampler reaches of their best. *curves*:
the best after so many evaluations, of all samplers, from the same starts and from nothing.

Writes ``benchmarks/results/<date>-exploration.md`` and ``.json``. Times depend on what else the machine does: the load
average at the start is part of the results.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from forerun.search.explore.flat.exhaustive import Problem
from forerun.search.explore.samplers import Exploration, Exploring, StopConditions, explore, sampler_named
from forerun.search.explore.samplers.local_sampler import LocalSampler
from forerun.search.explore.samplers.warm_starts import flat_starts
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.workers import Choice
from forerun.simulator import score
from forerun.simulator.events import event_scores
from forerun.spaces.strategies import Strategy, table_of
from forerun.spaces.strategies.staged_space import StagedSpace

RESULTS = Path(__file__).parent / "results"
LARGE = {"model": "llama3-70b", "cluster": "dgx-h100", "gpus": "128", "global_batch": 1024, "seq_len": 8192}
SERIAL = Choice(kind="serial")
EVERY = ("layers", "recompute", "tp")
FIXED: dict[str, list[object]] = {"vpp": [1], "cp": [1], "placement": [0], "sp": [1]}
REDUCED: dict[str, tuple[dict[str, Any], dict[str, list[object]]]] = {
    "nanotron, pp 4, tp 2 to 8": ({"framework": "nanotron"}, {"pp": [4], "tp": [2, 4, 8], "mbs": [1], "zero": [1]}),
    "torchtitan, 16k tokens, pp 4, tp 2 or 4": (
        {"framework": "torchtitan", "seq_len": 16384},
        {"pp": [4], "tp": [2, 4], "mbs": [1], "zero": [2], "schedule": ["1f1b"]},
    ),
    "megatron-lm, cp 4, pp 8, tp 1 or 2, no recompute": (
        {"global_batch": 1024},
        {"pp": [8], "tp": [1, 2], "cp": [4], "mbs": [1, 2], "zero": [1], "recompute": ["none"], "split": ["even"]},
    ),
    "megatron-deepspeed, 4k tokens, pp 4, tp 2 to 8": (
        {"framework": "megatron-deepspeed", "seq_len": 4096},
        {"pp": [4], "tp": [2, 4, 8], "mbs": [1], "zero": [1]},
    ),
    "megatron-lm, pp 2, tp 4 or 8, any number of layers": (
        {"framework": "megatron-lm"},
        {"pp": [2], "tp": [4, 8], "mbs": [1], "zero": [1], "split": ["even"], "recompute": ["none", "full"]},
    ),
    "torchtitan, 40 GB, pp 4, tp 4 or 8": (
        {"framework": "torchtitan", "cluster": "dgx-a100-40"},
        {"pp": [4], "tp": [4, 8], "mbs": [1], "zero": [2], "schedule": ["1f1b"], "split": ["even"]},
    ),
}
MARKS = (1, 10, 30, 100, 300, 1_000, 3_000, 10_000)
"""Evaluations at which curves are told."""
QUALITIES = (0.25, 0.5, 0.9, 0.99)
"""Shares of the gain of the best over the best flat strategy."""


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--others", type=int, default=3, help="seeds of the samplers that do not know the problem")
    parser.add_argument(
        "--trials", type=int, default=300, help="evaluations of TPE and NSGA-II, three times as many asked"
    )
    parser.add_argument("--only", default="large,reduced,curves")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    wanted = args.only.split(",")
    stem = RESULTS / f"{datetime.date.today()}-exploration"
    document: dict[str, Any] = {"schema": 1}
    if stem.with_suffix(".json").exists():  # --only measures a part anew
        document = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
    sections = {
        "reduced": lambda: [reduced(model, args.seeds) for model in REDUCED],
        "large": lambda: large(args.seeds),
        "curves": lambda: curves(args.others, args.trials),
    }
    for name, measure in sections.items():
        if name in wanted:
            document |= {"machine": machine(), name: measure()}
            stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            stem.with_suffix(".md").write_text(page(document), encoding="utf-8")
            print(f"{name} is done", file=sys.stderr, flush=True)
    print(page(document))


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "processor": next(
            (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown"
        ),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "optuna")},
    }


def large(seeds: int) -> dict[str, Any]:
    """Search the whole space with every seed."""
    start = time.perf_counter()
    setting = resolve(Request(**LARGE))  # type: ignore[arg-type]  # values of the fields' types
    space = Exploring(per_stage=EVERY).space(setting.space())
    starts = flat_starts(Problem(space=space.flat, objective="throughput", top=10), SERIAL)
    flat_s = time.perf_counter() - start
    rows = []
    for seed in range(seeds):
        begun = time.perf_counter()
        sampler = LocalSampler(seed)
        found = explore(space, sampler, starts=starts.strategies)
        rows.append(
            {
                "seed": seed,
                "strategy": str(found.feasible[0]),
                "step_time_s": found.curve[-1][1],
                "evaluations_to_best": found.curve[-1][0],
                "evaluations": found.scored,
                "stages_costed": sampler.stages_costed,
                "seconds": time.perf_counter() - begun,
            }
        )
    best = min(rows, key=lambda row: row["step_time_s"])
    pair = [starts.strategies[0], next(s for s in found.feasible if str(s) == best["strategy"])]
    closed, events = (each(space.context, table_of(pair)) for each in (score, event_scores))
    return {
        "request": LARGE,
        "size": str(space.size),
        "flat": {"strategy": str(pair[0]), "step_time_s": float(closed.step_time_s[0]), "seconds": flat_s},
        "best": best["strategy"],
        "events": {"flat_s": float(events.step_time_s[0]), "best_s": float(events.step_time_s[1])},
        "runs": rows,
    }


def reduced(name: str, seeds: int) -> dict[str, Any]:
    """Look at a whole reduced space, and let the sampler look for its best with every seed."""
    fields, axes = REDUCED[name]
    known = {"cluster": "dgx-h100", "gpus": "128", "global_batch": 256, "seq_len": 8192}
    setting = resolve(Request(model="llama3-70b", overrides={**FIXED, **axes}, **{**known, **fields}))
    space = StagedSpace(flat=setting.space(), reach=1, recompute=True, halves=True)
    limits = StopConditions(evaluations=1 << 40, asked=1 << 40, stagnation=None)
    whole = explore(space, sampler_named(Exploring(sampler="exhaustive"), space)[0], limits=limits)
    starts = flat_starts(Problem(space=space.flat, objective="throughput", top=5), SERIAL)
    best, flat = whole.curve[-1][1], float(starts.piece.best.keys[0][0]) if starts.piece.best else float("nan")
    runs = []
    for seed in range(seeds):
        found = explore(space, LocalSampler(seed), starts=starts.strategies, limits=StopConditions(evaluations=200))
        runs.append({"seed": seed, "share": best / found.curve[-1][1], "evaluations_to_best": found.curve[-1][0]})
    return {
        "name": name,
        "candidates": whole.scored,
        "best": str(whole.feasible[0]),
        "best_s": best,
        "flat_s": flat,
        "runs": runs,
    }


def curves(seeds: int, trials: int) -> dict[str, Any]:
    """Let all samplers look at the large space, from the same starts and from nothing."""
    setting = resolve(Request(**LARGE))  # type: ignore[arg-type]  # values of the fields' types
    space = Exploring(per_stage=EVERY).space(setting.space())
    starts = flat_starts(Problem(space=space.flat, objective="throughput", top=10), SERIAL)
    assert starts.piece.best is not None
    rows = []
    for name, most in (("local", 1_000), ("random", 10_000), ("tpe", trials)):
        for begin in ("flat", "nothing"):
            for seed in range(seeds):
                chosen: Sequence[Strategy] = starts.strategies if begin == "flat" else ()
                begun = time.perf_counter()
                asked = 3 * most if name == "tpe" else 10 * most
                limits = StopConditions(evaluations=most, asked=asked, barren=1 << 30, stagnation=None)
                sampler = sampler_named(Exploring(sampler=name, seed=seed), space)[0]
                found = explore(space, sampler, starts=chosen, limits=limits)
                print(f"{name} {begin} {seed}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
                rows.append(_run(name, begin, seed, found, time.perf_counter() - begun))
    return {"flat_s": float(starts.piece.best.keys[0][0]), "starts": len(starts.strategies), "runs": rows}


def _run(name: str, begin: str, seed: int, found: Exploration, seconds: float) -> dict[str, Any]:
    return {
        "sampler": name,
        "begin": begin,
        "seed": seed,
        "evaluations": found.scored,
        "asked": found.asked,
        "seconds": seconds,
        "curve": [list(point) for point in found.curve],
    }


def page(document: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    facts = document["machine"]
    lines = ["# Exploration of stages that differ", ""]
    lines += [
        f"{facts['processor']}, {facts['cores']} cores (one used), load {facts['load']:.1f} at the start; "
        f"Python {facts['python']}, numpy {facts['numpy']}, Optuna {facts['optuna']}. "
        "Made by `python benchmarks/exploration.py`.",
        "",
        "Llama 3 70B, 128 H100s, global batch 1,024, 8,192 tokens, bf16, megatron-lm; layers, recompute (with a number "
        "of layers) of every stage, and tp of each half are free.",
    ]
    for name, section in (("large", _large), ("reduced", _reduced), ("curves", _curves)):
        if name in document:
            lines += ["", *section(document[name])]
    return "\n".join(lines) + "\n"


def _large(found: dict[str, Any]) -> list[str]:
    runs = found["runs"]
    steps = sorted(run["step_time_s"] for run in runs)
    flat = found["flat"]["step_time_s"]
    spent = [run["seconds"] for run in runs]
    events = found["events"]
    return [
        f"## The whole space: {float(found['size']):.2g} candidates",
        "",
        "| | |",
        "|---|---|",
        f"| best flat strategy | {flat:.2f} s, `{found['flat']['strategy']}` |",
        f"| seconds to find it | {found['flat']['seconds']:.1f} |",
        f"| best with stages that differ | {steps[0]:.2f} s, `{found['best']}` |",
        f"| gain | {flat / steps[0] - 1:.1%}; by the event engine {events['flat_s'] / events['best_s'] - 1:.1%} |",
        f"| seeds | {len(runs)}; the worst reaches {steps[0] / steps[-1]:.2%} of the best |",
        f"| seconds to the end, without the flat search | {statistics.median(spent):.1f} (at most {max(spent):.1f}) |",
        f"| evaluations to the best, starts included | {max(run['evaluations_to_best'] for run in runs)} at most |",
        f"| single stages costed by planning | {runs[0]['stages_costed']:,} |",
    ]


def _reduced(found: list[dict[str, Any]]) -> list[str]:
    lines = [
        "## Reduced spaces, looked at candidate by candidate",
        "",
        "| space | candidates | best flat | best of all | gain | seeds at 99 % | worst seed | evaluations |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        shares = [run["share"] for run in one["runs"]]
        most = max(run["evaluations_to_best"] for run in one["runs"])
        lines.append(
            f"| {one['name']} | {one['candidates']:,} | {one['flat_s']:.3f} s | {one['best_s']:.3f} s, `{one['best']}` "
            f"| {one['flat_s'] / one['best_s'] - 1:.2%} | {sum(s >= 0.99 for s in shares)} of {len(shares)} "
            f"| {min(shares):.2%} | {most} at most |"
        )
    return lines


def _curves(found: dict[str, Any]) -> list[str]:
    flat, runs = found["flat_s"], found["runs"]
    best = min(run["curve"][-1][1] for run in runs if run["curve"])
    groups = list(dict.fromkeys((run["sampler"], run["begin"]) for run in runs))

    def of(group: tuple[str, str]) -> list[dict[str, Any]]:
        return [run for run in runs if (run["sampler"], run["begin"]) == group]

    lines = [
        "## Curves",
        "",
        f"Best step time after so many evaluations, median over seeds ({len(of(groups[0]))}). *flat*: from the same "
        f"{found['starts']} starts (the best flat strategies, and those that almost fit; they count); *nothing*: from "
        f"none. The best flat strategy takes {flat:.2f} s.",
        "",
        "| sampler | from | " + " | ".join(f"{mark:,}" for mark in MARKS) + " | s per run |",
        "|---|---|" + "---|" * (len(MARKS) + 1),
    ]
    for group in groups:
        cells = [_after(of(group), mark) for mark in MARKS]
        seconds = statistics.median(run["seconds"] for run in of(group))
        lines.append(f"| {group[0]} | {group[1]} | " + " | ".join(cells) + f" | {seconds:.1f} |")
    lines += [
        "",
        f"Evaluations until a share of the gain ({flat:.2f} to {best:.2f} s) is reached, median over seeds; in "
        "brackets how many times those of *local* from the same beginning.",
        "",
        "| sampler | from | " + " | ".join(f"{share:.0%}" for share in QUALITIES) + " |",
        "|---|---|" + "---|" * len(QUALITIES),
    ]
    for group in groups:
        cells = []
        for share in QUALITIES:
            value = flat / (1 + share * (flat / best - 1))
            own, ours = (_until(of(each), value) for each in (group, ("local", group[1])))
            cells.append(_needed(own, ours, max(run["evaluations"] for run in of(group))))
        lines.append(f"| {group[0]} | {group[1]} | " + " | ".join(cells) + " |")
    return lines


def _after(runs: list[dict[str, Any]], mark: int) -> str:
    if mark > max(run["evaluations"] for run in runs):
        return ""
    values = [min((value for at, value in run["curve"] if at <= mark), default=float("inf")) for run in runs]
    middle = statistics.median(values)
    return "none fits" if middle == float("inf") else f"{middle:.2f}"


def _until(runs: list[dict[str, Any]], value: float) -> float:
    reached = [next((at for at, found in run["curve"] if found <= value), float("inf")) for run in runs]
    return float(statistics.median_high(reached))


def _needed(own: float, ours: float, most: int) -> str:
    if own == float("inf"):
        return f"not in {most:,} (> {most / ours:,.0f})" if ours < float("inf") else f"not in {most:,}"
    return f"{own:,.0f}" if own == ours else f"{own:,.0f} ({own / ours:,.1f})"


if __name__ == "__main__":
    main()
