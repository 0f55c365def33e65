"""What ten runs teach about peak memory: measured groups, ten runs drawn at random, the rest predicted.

    python benchmarks/calibration_memory.py DIR [--out FILE]

DIR holds CSV files of the schema in docs/measured-runs.md. Groups of 20 runs or more whose peak memory was measured, or
some of which ran out of memory. Of every group ten runs are drawn (three times, figures are means), with their peaks
and their labels; then the peaks of the others are predicted, and whether they fit. Takes about a minute of one core.
"""

import argparse
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forerun.search.calibrate.machine import memory_runs_of, told_of_memory
from forerun.search.validate import Run, load_runs, predict
from forerun.search.validate.metrics import memory_error
from forerun.simulator.calibration import MemoryPosterior, fit_memory, nothing_measured
from forerun.simulator.calibration.belief import LEVEL
from forerun.spaces.strategies import Context, table_of

Floats = NDArray[np.float64]

RESULTS = Path(__file__).resolve().parent / "results"
SMALLEST = 20
RUNS = 10
DRAWS = 3
FIGURES = ("before", "after", "inside", "verdict_before", "verdict", "caught", "alarms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Shares, NaN where nothing of the kind was measured. ``before``, ``after``: medians of absolute errors; ``inside``
    the 90 % interval; verdicts (fits or not) that are right; runs without memory whose upper bound says so
    (``caught``); runs that ran whose upper bound exceeds the device (``alarms``)."""

    before: float
    after: float
    inside: float
    verdict_before: float
    verdict: float
    caught: float
    alarms: float


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / f"{date.today()}-calibration-memory.md")
    args = parser.parse_args()
    members: dict[str, list[Run]] = {}
    for run in load_runs(sorted(args.folder.glob("*.csv"))).runs:
        if run.group:
            members.setdefault(run.group, []).append(run)
    lines, every, weights = [], [], []
    for name, runs in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])):
        told = told_of_memory(runs)
        if len(told) < SMALLEST:
            continue
        draws = [figures(told, seed) for seed in range(DRAWS)]
        found = [_mean([getattr(draw, figure) for draw in draws]) for figure in FIGURES]
        measured = sum(1 for run in told if run.outcome == "ok" and run.peak_memory_bytes)
        failed = sum(1 for run in told if run.outcome == "oom")
        shown = [name.replace("|", ", "), str(len(told)), str(measured), str(failed), *map(_pct, found)]
        lines.append(f"| {' | '.join(shown)} |")
        every.append(found)
        weights.append(len(told))
        print(lines[-1], flush=True)
    if not lines:
        sys.exit(f"no group of {SMALLEST} runs or more with peak memory or failures in {args.folder}")
    args.out.write_text("\n".join(page(lines, np.array(every), np.array(weights))) + "\n", encoding="utf-8")
    print(f"wrote {args.out}")
    return 0


def figures(told: Sequence[Run], seed: int) -> Figures:
    """Fit ten runs drawn at random, and judge the rest."""
    order = np.random.default_rng(seed).permutation(len(told))
    result = fit_memory(memory_runs_of([told[row] for row in order[:RUNS]]))
    assert result is not None
    rest = [told[row] for row in order[RUNS:]]
    rows = np.arange(len(rest))
    failed = np.array([run.outcome == "oom" for run in rest])
    limit = np.array([run.context.cluster.device.memory_bytes for run in rest])
    known, reach, needed = _calibrated(rest, result.posterior)
    plain, fitted = predict(rest), predict(known)
    errors = []
    for predicted in (plain, fitted):
        error = memory_error(predicted, rows)
        errors.append(np.log1p(error[np.isfinite(error) & ~failed]))
    within = reach[np.isfinite(memory_error(fitted, rows)) & ~failed]
    high = needed * reach
    return Figures(
        before=_median(errors[0]),
        after=_median(errors[1]),
        inside=_mean(np.abs(errors[1]) <= np.log(within)),
        verdict_before=_mean(plain.oom == failed),
        verdict=_mean(fitted.oom == failed),
        caught=_mean(high[failed] > limit[failed]),
        alarms=_mean(high[~failed] > limit[~failed]),
    )


def _calibrated(runs: Sequence[Run], held: MemoryPosterior) -> tuple[list[Run], Floats, Floats]:
    """Return runs whose contexts know of the fit, the factor to the bounds of their peaks, and what they need."""
    posterior, contexts = replace(nothing_measured(), held=held), dict[int, Context]()
    groups: dict[int, list[int]] = {}
    for row, run in enumerate(runs):
        contexts.setdefault(id(run.context), posterior.applied(run.context))
        groups.setdefault(id(run.context), []).append(row)
    reach, needed = np.empty(len(runs)), np.empty(len(runs))
    for key, rows in groups.items():
        bounds = held.bounds(contexts[key], table_of([runs[row].strategy for row in rows]), LEVEL)
        reach[rows], needed[rows] = bounds.reach, bounds.needed_bytes
    return [replace(run, context=contexts[id(run.context)]) for run in runs], reach, needed


def page(lines: Sequence[str], every: Floats, weights: Floats) -> list[str]:
    """Return the result as lines of Markdown."""
    mean = {name: _mean(every[:, place]) for place, name in enumerate(FIGURES)}
    pooled = {
        name: float(np.average(every[known, place], weights=weights[known]))
        for place, name in enumerate(FIGURES)
        if (known := np.isfinite(every[:, place])).any()
    }
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return [
        f"# Peak memory calibrated with ten runs, {date.today()}",
        "",
        "    python benchmarks/calibration_memory.py DIR",
        "",
        f"After commit {commit.stdout.strip()}; {platform.machine()}, Python {platform.python_version()}, "
        f"numpy {np.__version__}.",
        "",
        f"{len(lines)} groups of {SMALLEST} runs or more with peak memory or labels; ten drawn at random, {DRAWS} "
        "times; figures are of the runs that were not drawn.",
        "",
        "| | catalogue | calibrated |",
        "|---|---|---|",
        f"| median error of the peak, mean over groups | {_pct(mean['before'])} | {_pct(mean['after'])} |",
        f"| verdict (fits or not) right, of all runs | {_pct(pooled['verdict_before'])} | {_pct(pooled['verdict'])} |",
        f"| within the 90 % interval, of all runs | | {_pct(pooled['inside'])} |",
        f"| runs without memory whose upper bound exceeds the device | | {_pct(pooled['caught'])} |",
        f"| runs that ran whose upper bound does (marked as may not fit) | | {_pct(pooled['alarms'])} |",
        "",
        "Everything in per cent. Peaks: runs whose peak was measured; labels: runs that ran out of memory. A blank: "
        "nothing of the kind was measured.",
        "",
        "| group | runs | peaks | out of memory | error before | after | within | verdict before | after | caught | "
        "marked |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *lines,
    ]


def _median(error: Floats) -> float:
    return float(np.median(np.abs(np.expm1(error)))) if len(error) else float("nan")


def _mean(values: "Sequence[float] | NDArray[np.bool_] | Floats") -> float:
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    return float(known.mean()) if len(known) else float("nan")


def _pct(share: float) -> str:
    return f"{100 * share:.1f}" if np.isfinite(share) else ""


if __name__ == "__main__":
    sys.exit(main())
