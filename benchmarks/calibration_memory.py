"""What ten runs teach about peak memory: measured groups, ten runs drawn at random, the rest predicted.

    python benchmarks/calibration_memory.py DIR [--out FILE]

DIR holds CSV files of the schema in docs/measured-runs.md. Groups of 20 runs or more whose peak memory was measured, or
some of which ran out of memory. Of every group ten runs are drawn (three times, figures are means), with their peaks
and their labels; then the peaks of the others are predicted, and whether they fit. Also with settings of the residual
that are chosen without the source that they are judged on. Takes about three minutes of one core.
"""

import argparse
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path

import numpy as np
from calibration_memory_risk import Said, joined, markdown, said_of, telling_tables
from calibration_memory_settings import FEWEST_PEAKS, groups_of_peaks, peak_density
from calibration_settings import settings_without
from numpy.typing import NDArray

from forerun.search.measured.calibrate.machine import memory_runs_of, told_of_memory
from forerun.search.measured.validate import MeasuredRun, load_runs, predict
from forerun.search.measured.validate.metrics import memory_error
from forerun.simulator import score
from forerun.simulator.calibration import USUAL, ErrorPriors, MemoryPosterior, fit_memory, nothing_measured
from forerun.simulator.calibration.belief import LEVEL
from forerun.simulator.memory.risk import RISKY
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
    the 90 % interval; verdicts (fits or not) that are right; runs out of memory that do not fit or are marked as
    risky (``caught``); runs that ran of which the same is said (``alarms``)."""

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
    runs = load_runs(sorted(args.folder.glob("*.csv"))).runs
    telling, members = telling_tables(runs), dict[str, list[MeasuredRun]]()
    for run in runs:
        if run.group:
            members.setdefault(run.group, []).append(run)
    groups = groups_of_peaks(members)
    chosen = {source: settings_without(source, groups, peak_density) for source in sorted(groups)}
    lines, every, weights, said, elsewhere = [], [], [], list[Said](), []
    for name, own in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])):
        told = told_of_memory(own)
        if len(told) < SMALLEST:
            continue
        draws = [figures(told, seed, said if told[0].file in telling else None) for seed in range(DRAWS)]
        found = [_mean([getattr(draw, figure) for draw in draws]) for figure in FIGURES]
        other = [figures(told, seed, None, chosen.get(told[0].file, USUAL)) for seed in range(DRAWS)]
        elsewhere.append([_mean([getattr(draw, figure) for draw in other]) for figure in FIGURES])
        measured = sum(1 for run in told if run.outcome == "ok" and run.peak_memory_bytes)
        failed = sum(1 for run in told if run.outcome == "oom")
        shown = [name.replace("|", ", "), str(len(told)), str(measured), str(failed), *map(_pct, found)]
        lines.append(f"| {' | '.join(shown)} |")
        every.append(found)
        weights.append(len(told))
        print(lines[-1], flush=True)
    if not lines:
        sys.exit(f"no group of {SMALLEST} runs or more with peak memory or failures in {args.folder}")
    told_risks = markdown(joined(said)) if said else ["No table names runs that ran out of memory."]
    densities = {s: (peak_density(groups[s], USUAL), peak_density(groups[s], one)) for s, one in chosen.items()}
    made = Made(lines=lines, every=np.array(every), elsewhere=np.array(elsewhere), weights=np.array(weights))
    args.out.write_text("\n".join(page(made, told_risks, chosen, densities)) + "\n", encoding="utf-8")
    print(f"wrote {args.out}")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Lines of the table of groups, their figures [G, 7] with the usual settings and with those chosen ``elsewhere``,
    and how many runs each group has."""

    lines: Sequence[str]
    every: Floats
    elsewhere: Floats
    weights: Floats


def figures(told: Sequence[MeasuredRun], seed: int, said: list[Said] | None, settings: ErrorPriors = USUAL) -> Figures:
    """Fit ten runs drawn at random, and judge the rest; ``said`` gets what is said of them."""
    order = np.random.default_rng(seed).permutation(len(told))
    result = fit_memory(memory_runs_of([told[row] for row in order[:RUNS]]), settings)
    assert result is not None
    rest = [told[row] for row in order[RUNS:]]
    rows = np.arange(len(rest))
    failed = np.array([run.outcome == "oom" for run in rest])
    known, reach, risky = _calibrated(rest, result.posterior)
    plain, fitted = predict(rest), predict(known)
    if said is not None:
        said.append(said_of(rest, result.posterior))
    errors = []
    for predicted in (plain, fitted):
        error = memory_error(predicted, rows)
        errors.append(np.log1p(error[np.isfinite(error) & ~failed]))
    within = reach[np.isfinite(memory_error(fitted, rows)) & ~failed]
    return Figures(
        before=_median(errors[0]),
        after=_median(errors[1]),
        inside=_mean(np.abs(errors[1]) <= np.log(within)),
        verdict_before=_mean(plain.oom == failed),
        verdict=_mean(fitted.oom == failed),
        caught=_mean(risky[failed]),
        alarms=_mean(risky[~failed]),
    )


def _calibrated(
    runs: Sequence[MeasuredRun], held: MemoryPosterior
) -> tuple[list[MeasuredRun], Floats, NDArray[np.bool_]]:
    """Return runs whose contexts know of the fit, the factor to the bounds of their peaks, and whether they are said
    not to fit or to be risky."""
    posterior, contexts = replace(nothing_measured(), held=held), dict[int, Context]()
    groups: dict[int, list[int]] = {}
    for row, run in enumerate(runs):
        contexts.setdefault(id(run.context), posterior.applied(run.context))
        groups.setdefault(id(run.context), []).append(row)
    reach, risky = np.empty(len(runs)), np.zeros(len(runs), dtype=bool)
    for key, rows in groups.items():
        table = table_of([runs[row].strategy for row in rows])
        scores = score(contexts[key], table)
        assert scores.oom_risk is not None
        reach[rows], risky[rows] = held.reach(contexts[key], table, LEVEL), (scores.oom_risk > RISKY) | ~scores.fits
    return [replace(run, context=contexts[id(run.context)]) for run in runs], reach, risky


def page(
    made: Made,
    told_risks: Sequence[str],
    chosen: Mapping[str, ErrorPriors],
    densities: Mapping[str, tuple[float, float]],
) -> list[str]:
    """Return the result as lines of Markdown; ``densities``: of each source, with the usual settings and the chosen."""
    mean, other = ({n: _mean(v[:, at]) for at, n in enumerate(FIGURES)} for v in (made.every, made.elsewhere))
    pooled, others = _pooled(made.every, made.weights), _pooled(made.elsewhere, made.weights)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    names = [field.name for field in fields(ErrorPriors)]
    return [
        f"# Peak memory calibrated with ten runs, {date.today()}",
        "",
        "    python benchmarks/calibration_memory.py DIR",
        "",
        f"After commit {commit.stdout.strip()}; {platform.machine()}, Python {platform.python_version()}, "
        f"numpy {np.__version__}.",
        "",
        f"{len(made.lines)} groups of {SMALLEST} runs or more with peak memory or labels; ten drawn at random, {DRAWS} "
        "times; figures are of the runs that were not drawn.",
        "",
        "| | catalogue | calibrated | with settings chosen on the other sources |",
        "|---|---|---|---|",
        f"| median error of the peak, mean over groups | {_pct(mean['before'])} | {_pct(mean['after'])} | "
        f"{_pct(other['after'])} |",
        f"| verdict (fits or not) right, of all runs | {_pct(pooled['verdict_before'])} | {_pct(pooled['verdict'])} | "
        f"{_pct(others['verdict'])} |",
        f"| within the 90 % interval, of all runs | | {_pct(pooled['inside'])} | {_pct(others['inside'])} |",
        f"| runs out of memory that do not fit or are marked | | {_pct(pooled['caught'])} | {_pct(others['caught'])} |",
        f"| runs that ran of which that is said | | {_pct(pooled['alarms'])} | {_pct(others['alarms'])} |",
        "",
        "Everything in per cent. Peaks: runs whose peak was measured; labels: runs that ran out of memory. A blank: "
        "nothing of the kind was measured.",
        "",
        "## The risk of running out",
        "",
        *told_risks,
        "",
        "## Settings chosen without a source",
        "",
        f"By the measured peaks of all other sources (groups of {FEWEST_PEAKS} or more, half of them or ten drawn). "
        "The usual ones are those of step times: no peak chose them. Densities: mean logarithms, of runs not drawn.",
        "",
        f"| judged on | {' | '.join(names)} | density, usual settings | density, these |",
        f"|---|{'---:|' * (len(names) + 2)}",
        *(
            f"| {source} | {' | '.join(f'{getattr(one, name):.3g}' for name in names)} | "
            f"{' | '.join(f'{value:.2f}' for value in densities.get(source, ()))} |"
            for source, one in {**chosen, "usual": USUAL}.items()
        ),
        "",
        "## Groups",
        "",
        "| group | runs | peaks | out of memory | error before | after | within | verdict before | after | caught | "
        "marked |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *made.lines,
    ]


def _pooled(every: Floats, weights: Floats) -> dict[str, float]:
    """Return the figures of all runs together."""
    return {
        name: float(np.average(every[known, place], weights=weights[known]))
        for place, name in enumerate(FIGURES)
        if (known := np.isfinite(every[:, place])).any()
    }


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
