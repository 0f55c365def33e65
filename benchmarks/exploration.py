"""Trials in which samplers of Optuna find the best strategy whose stages differ, on eight spaces.

    python benchmarks/exploration.py [--trials N] [--seeds N] [--only TEXT] [--out FILE.md]

Each sampler drives a study of its own with the same objective (the predicted step, memory and laws as constraints):
forerun's planner and local search, Optuna's TPE, and random choice. They begin with nothing, or with the best strategy
of the space with equal stages. Value: best step that fits after so many trials.

Optuna's TPE takes note of the constraints with Optuna 5 alone.
"""

import argparse
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from forerun.search.explore.flat.exhaustive import Problem
from forerun.search.explore.samplers import Exploring
from forerun.search.explore.samplers.stage_sampler import StageSampler
from forerun.search.explore.samplers.step_objective import StepObjective, parameters_of
from forerun.search.explore.samplers.warm_starts import flat_starts
from forerun.search.files.studies import constraints_of, quiet
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.workers import Choice
from forerun.spaces.strategies import Strategy
from forerun.spaces.strategies.staged_space import StagedSpace
from forerun.spaces.units import format_seconds

LAYERS, RECOMPUTE, TP, OFFLOAD = "layers", "recompute", "tp", "offload"
SPACES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "llama3-8b, 16 A100-40": (
        {"model": "llama3-8b", "cluster": "dgx-a100-40", "gpus": "16", "global_batch": 64, "seq_len": 8192},
        (LAYERS, RECOMPUTE, TP),
    ),
    "llama3-8b, 32 A100, torchtitan": (
        {"model": "llama3-8b", "cluster": "dgx-a100-40", "gpus": "32", "global_batch": 128, "seq_len": 8192,
         "framework": "torchtitan"},
        (LAYERS, RECOMPUTE),
    ),
    "gpt3-13b, 32 V100, offload": (
        {"model": "gpt3-13b", "cluster": "dgx1-v100", "gpus": "32", "global_batch": 1024, "seq_len": 2048,
         "precision": "fp16", "framework": "megatron-lm"},
        (LAYERS, RECOMPUTE, OFFLOAD),
    ),
    "llama3-70b, 128 H100": (
        {"model": "llama3-70b", "cluster": "dgx-h100", "gpus": "128", "global_batch": 1024, "seq_len": 8192},
        (LAYERS, RECOMPUTE, TP),
    ),
    "llama3-70b, 64 H100, nanotron": (
        {"model": "llama3-70b", "cluster": "dgx-h100", "gpus": "64", "global_batch": 256, "seq_len": 4096,
         "framework": "nanotron"},
        (LAYERS, RECOMPUTE),
    ),
    "mixtral-8x7b, 32 H100": (
        {"model": "mixtral-8x7b", "cluster": "dgx-h100", "gpus": "32", "global_batch": 256, "seq_len": 4096},
        (LAYERS, RECOMPUTE),
    ),
    "qwen3-32b, 64 A100-40, offload": (
        {"model": "qwen3-32b", "cluster": "dgx-a100-40", "gpus": "64", "global_batch": 256, "seq_len": 4096},
        (LAYERS, RECOMPUTE, OFFLOAD),
    ),
    "llama3-405b, 512 H100": (
        {"model": "llama3-405b", "cluster": "dgx-h100", "gpus": "512", "global_batch": 512, "seq_len": 8192},
        (LAYERS, RECOMPUTE, TP),
    ),
}  # fmt: skip
"""Requests, and what may differ between stages."""
Maker = Callable[[StepObjective, Sequence[Strategy], int], optuna.samplers.BaseSampler]
SAMPLERS: dict[str, Maker] = {
    "forerun": lambda objective, starts, seed: StageSampler(objective, starts=starts, seed=seed),
    "TPE": lambda objective, starts, seed: optuna.samplers.TPESampler(seed=seed),
    "random": lambda objective, starts, seed: optuna.samplers.RandomSampler(seed=seed),
}


def run(space: StagedSpace, name: str, starts: Sequence[Strategy], seed: int, trials: int) -> tuple[list[float], float]:
    """Return the best step after each trial (inf: none fits yet), and the seconds of the study."""
    objective = StepObjective(space)
    start_s = time.perf_counter()
    with quiet():
        study = optuna.create_study(sampler=SAMPLERS[name](objective, starts, seed))
        if name != "forerun":
            for strategy in starts:
                study.enqueue_trial({key: value for key, (value, _) in parameters_of(space, strategy).items()})
        study.optimize(objective, n_trials=trials)
    values = [
        trial.values[0] if trial.values and max(constraints_of(trial).values()) <= 0 else float("inf")
        for trial in study.trials
    ]
    best = np.minimum.accumulate(values).tolist()
    return best + [best[-1]] * (trials - len(best)), time.perf_counter() - start_s


def main() -> int:
    """Run all studies and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="spaces whose name has this text")
    results = Path(__file__).parent / "results"
    parser.add_argument("--out", type=Path, default=results / f"{date.today()}-exploration.md")
    args = parser.parse_args()
    marks = [count for count in (1, 3, 10, 30, 100, 300, 1000) if count <= args.trials]
    machine = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    lines = [
        f"# Samplers on stages that differ, {date.today()}",
        "",
        f"    python benchmarks/exploration.py --trials {args.trials} --seeds {args.seeds}",
        "",
        f"{machine[1] if machine else platform.machine()}, Python {platform.python_version()}, Optuna "
        f"{optuna.__version__}. Best predicted step that fits after so many trials, median of {args.seeds} seeds "
        "(worst where it differs); all samplers get the same objective, one trial at a time. *flat*: the best strategy "
        "with equal stages is the first trial.",
    ]
    standings: dict[str, list[str]] = {"nothing": [], "flat": []}
    for title, (fields, per_stage) in SPACES.items():
        if args.only not in title:
            continue
        space = Exploring(per_stage=per_stage).space(resolve(Request(**fields)).space())
        problem = Problem(space=space.flat, objective="throughput", top=1)
        first = flat_starts(problem, Choice(kind="serial")).strategies[:1]
        lines += ["", f"## {title}: {', '.join(per_stage)} ({space.size:.2g} candidates)", ""]
        lines += [
            "| sampler | from | " + " | ".join(map(str, marks)) + " | s |",
            "|---|---|" + "---:|" * (len(marks) + 1),
        ]
        for origin, starts in (("nothing", ()), ("flat", first)):
            worst: dict[str, list[list[float]]] = {}
            for name in SAMPLERS:
                studies = [run(space, name, starts, seed, args.trials) for seed in range(args.seeds)]
                worst[name] = [sorted(best[count - 1] for best, _ in studies) for count in marks]
                cells = " | ".join(map(_cell, worst[name]))
                lines.append(f"| {name} | {origin} | {cells} | {statistics.median(s for _, s in studies):.1f} |")
                print(title, lines[-1], flush=True)
            medians = {name: statistics.median(ranked[-1]) for name, ranked in worst.items()}
            forerun_s = medians.pop("forerun")
            other_s = min(medians.values())
            standings[origin].append("ahead" if forerun_s < other_s else "equal" if forerun_s == other_s else "behind")
    lines += ["", "## Spaces in which forerun's median is ahead of the better of the others after all trials", ""]
    lines += ["| from | ahead | equal | behind |", "|---|---:|---:|---:|"]
    for origin, places in standings.items():
        lines.append(
            f"| {origin} | " + " | ".join(str(places.count(one)) for one in ("ahead", "equal", "behind")) + " |"
        )
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {args.out}")
    return 0


def _cell(values: Sequence[float]) -> str:
    """Return the median and the worst of some steps."""
    texts = ["none fits" if value == float("inf") else format_seconds(value) for value in values]
    middle, last = texts[(len(texts) - 1) // 2], texts[-1]
    return middle if middle == last else f"{middle} ({last})"


if __name__ == "__main__":
    sys.exit(main())
