"""Errors of runs of mixtures of experts, one line for every layout and kind of software, and what their steps wait for.

    python benchmarks/accuracy/experts.py DIR

DIR holds CSV files of the schema in docs/measured-runs.md; functional tests of tiny models are left out. Runs that
agree in model, device, precision, layout and prediction are one line: the median of their steps. Prints Markdown.
"""

import argparse
from itertools import chain
from pathlib import Path

import numpy as np

from forerun.search.measured.validate import MeasuredRun, Predictions, load_runs, predict

TINY = ("mcore_functional_tests",)
HEAD = (
    "table",
    "model",
    "device",
    "precision",
    "tokens sent",
    "layout",
    "microbatches",
    "runs",
    "error %",
    "of the step",
)
SHOWN = ("compute", "recompute", "expert", "tensor", "host", "bubble", "data")
"""Parts of a step that are named where they are a twentieth of it."""
LEAST = 0.05


def main() -> None:
    """Predict and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    every = load_runs(sorted(parser.parse_args().folder.glob("*.csv"))).runs
    runs = [run for run in every if run.context.moe and run.file not in TINY and run.outcome == "ok"]
    found = predict(runs)
    layouts: dict[tuple[str, ...], list[int]] = {}
    for row, run in enumerate(runs):
        if found.predicted[row] and run.step_time_s:
            layouts.setdefault((*_kind(run), f"{found.step_time_s[row]:.3g}"), []).append(row)
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    errors = []
    for (*kind, _), rows in sorted(layouts.items()):
        errors.append(100 * float(np.median([found.step_time_s[row] / runs[row].step_time_s for row in rows]) - 1))
        print(f"| {' | '.join(kind)} | {len(rows)} | {errors[-1]:+.1f} | {_parts(found, rows[0])} |")
    each = np.array(
        [100 * (found.step_time_s[row] / runs[row].step_time_s - 1) for row in chain.from_iterable(layouts.values())]
    )
    print(
        f"\n{len(each)} runs: median error {np.median(abs(each)):.1f} %, mean {np.mean(abs(each)):.1f} %, bias ", end=""
    )
    print(f"{np.median(each):+.1f} %; {len(errors)} layouts: median error {np.median(np.abs(errors)):.1f} %")


def _kind(run: MeasuredRun) -> tuple[str, ...]:
    """Return in words what runs of one line agree in."""
    profile, strategy, context = run.context.framework, run.strategy, run.context
    sent = "once a node" if profile.dispatches_once else "all-to-all"
    span = strategy.ep * strategy.etp / context.cluster.scale_up_size
    where = "no ep" if strategy.ep == 1 else f"{sent}, {'one domain' if span <= 1 else f'{span:g} nodes'}"
    overlap = ", overlapped" if profile.overlap_expert else ""
    device = context.cluster.device.name
    microbatches = context.workload.global_batch / (strategy.dp * strategy.mbs)
    name = (run.file, context.model.name, device, context.workload.precision, where + overlap)
    return (*name, str(strategy), f"{microbatches:g}")


def _parts(found: Predictions, row: int) -> str:
    shares = {part: float(found.time_s[part][row] / found.step_time_s[row]) for part in SHOWN if part in found.time_s}
    return ", ".join(f"{part} {100 * share:.0f}" for part, share in shares.items() if share >= LEAST)


if __name__ == "__main__":
    main()
