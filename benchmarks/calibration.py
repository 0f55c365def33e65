"""What a calibration learns from ten runs, of step times and of peak memory: measured groups replayed.

    python benchmarks/calibration.py DIR [--out FILE]

DIR holds CSV files of the schema in docs/measured-runs.md. In every group of 20 measured runs or more the tool chooses
ten runs, is fitted to them, and predicts the rest, which it has not seen; ten runs drawn at random are the comparison.
Of groups with 20 measured peaks or failed starts ten are drawn at random. Takes some minutes of one core.
"""

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

from forerun.search.measured.calibrate.machine import memory_runs_of, told_of_memory
from forerun.search.measured.validate import MeasuredRun, load_runs, predict
from forerun.search.measured.validate.metrics import memory_error
from forerun.search.tune.informative import informative
from forerun.simulator.calibration import Belief, FittedRun, Posterior, fit, fit_memory, nothing_measured
from forerun.simulator.score_table import Floats
from forerun.spaces.strategies import by_context, table_of

RESULTS = Path(__file__).resolve().parent / "results"
SMALLEST, RUNS, DRAWS = 20, 10, 3
LEVEL = 0.9
STEPS = ("group", "runs", "before", "after", "after random ten", "inside 90 %")
PEAKS = ("group", "runs", "before", "after", "verdict before", "verdict after")


def main() -> int:
    """Replay all groups, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / f"{date.today()}-calibration.md")
    args = parser.parse_args()
    start, runs = time.perf_counter(), load_runs(sorted(args.folder.glob("*.csv"))).runs
    members: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        if run.group:
            members.setdefault(run.group, []).append(run)
    ordered = sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))
    steps = [(name, *row) for name, own in ordered if (row := step_times(own))]
    peaks = [(name, *row) for name, own in ordered if (row := peak_memory(own))]
    if not steps and not peaks:
        sys.exit(f"no group of {SMALLEST} measured runs or more in {args.folder}")
    machine = f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}"
    lines = [f"# Calibration with ten runs, {date.today()}", "", "    python benchmarks/calibration.py DIR", ""]
    lines += [
        f"{machine}; {time.perf_counter() - start:.0f} s. Medians of absolute errors of runs that were not among",
        "",
    ]
    lines[-2] += " the ten, in %."
    for title, columns, rows in (("Step times", STEPS, steps), ("Peak memory", PEAKS, peaks)):
        lines += [f"## {title}", "", *table(columns, rows), ""]
    args.out.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines) + f"wrote {args.out}")
    return 0


def table(columns: Sequence[str], rows: Sequence[tuple[str | float, ...]]) -> list[str]:
    """Return rows as Markdown, with the mean of every share below."""
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, count, *shares in rows:
        cells = [str(name).replace("|", ", "), f"{count}", *(f"{100 * float(share):.1f}" for share in shares)]
        lines.append(f"| {' | '.join(cells)} |")
    if rows:
        means = np.nanmean([[float(share) for share in row[2:]] for row in rows], axis=0)
        lines.append(f"| mean of {len(rows)} | | {' | '.join(f'{100 * mean:.1f}' for mean in means)} |")
    return lines


def step_times(group: Sequence[MeasuredRun]) -> tuple[float, ...] | None:
    """Return count, errors before and after ten chosen runs and after random ones, and the share within intervals."""
    predictions = predict(group)
    kept = [
        run
        for row, run in enumerate(predictions.runs)
        if run.outcome == "ok" and run.step_time_s and predictions.predicted[row]
    ]
    if len(kept) < SMALLEST:
        return None
    runs = [kept[row] for rows in by_context(fitted_runs(kept)) for row in rows]
    fitted, truth = fitted_runs(runs), np.array([run.step_time_s for run in runs], dtype=np.float64)
    plain = believed(nothing_measured(), runs)
    chosen = [row for row, _ in informative(plain, RUNS)]
    after = believed(fit([fitted[row] for row in chosen]).posterior, runs)
    low_s, high_s = after.interval_s(LEVEL)
    rest = np.setdiff1d(np.arange(len(runs)), chosen)
    random = []
    for seed in range(DRAWS):
        drawn = np.random.default_rng(seed).choice(len(runs), RUNS, replace=False)
        belief = believed(fit([fitted[row] for row in drawn]).posterior, runs)
        random.append(error(belief, truth, np.setdiff1d(np.arange(len(runs)), drawn)))
    inside = ((low_s <= truth) & (truth <= high_s))[rest].mean()
    return len(runs), error(plain, truth, rest), error(after, truth, rest), float(np.mean(random)), float(inside)


def fitted_runs(runs: Sequence[MeasuredRun]) -> list[FittedRun]:
    """Return runs as the fit takes them."""
    return [
        FittedRun(context=run.context, strategy=run.strategy, step_time_s=float(run.step_time_s or 1.0)) for run in runs
    ]


def believed(posterior: Posterior, runs: Sequence[MeasuredRun]) -> Belief:
    """Return the belief of a posterior about runs that are sorted by context."""
    parts = []
    for rows in by_context(fitted_runs(runs)):
        context = posterior.applied(runs[rows[0]].context)
        parts.append((context, table_of([runs[row].strategy for row in rows])))
    return posterior.believe(parts)


def error(belief: Belief, truth: Floats, rows: np.ndarray) -> float:
    """Return the median absolute error of some rows."""
    return float(np.median(np.abs(belief.time_s()[rows] / truth[rows] - 1)))


def peak_memory(group: Sequence[MeasuredRun]) -> tuple[float, ...] | None:
    """Return count, errors of peaks before and after ten random runs, and right verdicts (fits or not) likewise."""
    told = told_of_memory(group)
    if len(told) < SMALLEST:
        return None
    figures = []
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(len(told))
        result = fit_memory(memory_runs_of([told[row] for row in order[:RUNS]]))
        if result is None:
            return None
        posterior, rest = replace(nothing_measured(), held=result.posterior), [told[row] for row in order[RUNS:]]
        known = [replace(run, context=posterior.applied(run.context)) for run in rest]
        failed = np.array([run.outcome == "oom" for run in rest])
        errors, verdicts = [], []
        for runs in (rest, known):
            predicted = predict(runs)
            missed = np.abs(memory_error(predicted, np.arange(len(runs))))
            errors.append(float(np.nanmedian(np.where(failed, np.nan, missed))) if not failed.all() else np.nan)
            verdicts.append(float((predicted.oom == failed).mean()))
        figures.append((*errors, *verdicts))
    return len(told), *map(float, np.mean(figures, axis=0))


if __name__ == "__main__":
    sys.exit(main())
