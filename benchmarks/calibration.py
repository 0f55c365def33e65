"""What a calibration learns from ten runs, and how soon the best strategy is found: measured groups replayed.

    python benchmarks/calibration.py DIR [--out FILE] [--accuracy-only]

DIR holds CSV files of the schema in docs/measured-runs.md. In every group of 20 measured runs or more the tool chooses
ten runs, is fitted to them, and predicts the rest, which it has not seen. Then it looks for the fastest run of the
group: it chooses one run after the other, and after each the strategy believed fastest is looked up; the same is done
with runs drawn at random. Choosing is compared on one linear form of the model for both, so that many random draws can
be made; the last column is the tool as it is used, fitted anew after every run. Settings of the residual were found on
these groups, so that everything is done a second time with settings chosen without the judged source
(calibration_settings.py). Takes some minutes of one core.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
from calibration_groups import DRAWS, RESULTS, RUNS, SMALLEST, TENS, Accuracy, Curves, Group, groups
from calibration_page import accuracy_line, page
from calibration_settings import Linear, errors_of_random_tens, settings_without
from numpy.typing import NDArray

from forerun.search.answer.next_runs import propose
from forerun.simulator.calibration import (
    USUAL,
    Belief,
    ErrorPriors,
    fit,
    nothing_measured,
)

Floats = NDArray[np.float64]

SMALLEST_OTHER = 5
"""Runs of the groups from which settings are chosen for another source."""
LEVEL = 0.9
LONGEST = 20
"""Runs drawn at random in a group, at most; the tool chooses up to half of that."""


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / f"{date.today()}-calibration.md")
    parser.add_argument("--accuracy-only", action="store_true", help="leave the search for the fastest run out")
    args = parser.parse_args()
    start = time.perf_counter()
    found = groups(sorted(args.folder.glob("*.csv")))
    if not found:
        sys.exit(f"no group of {SMALLEST} measured runs or more in {args.folder}")
    accuracies = _accuracies(found, {})
    apart: dict[str, list[Linear]] = {}
    for group in groups(sorted(args.folder.glob("*.csv")), SMALLEST_OTHER):
        apart.setdefault(group.source, []).append(group.linear)
    chosen = {source: settings_without(source, apart) for source in dict.fromkeys(group.source for group in found)}
    honest = _accuracies(found, chosen)
    curves = [] if args.accuracy_only else [regrets(group) for group in found]
    lines = page(accuracies, honest, chosen, found, curves, time.perf_counter() - start)
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {args.out}")
    return 0


def _accuracies(found: Sequence[Group], settings: Mapping[str, ErrorPriors]) -> list[Accuracy]:
    result = []
    for group in found:
        result.append(accuracy(group, settings.get(group.source, USUAL), randomly=not settings))
        print(accuracy_line(result[-1]), flush=True)
    return result


def accuracy(group: Group, settings: ErrorPriors = USUAL, *, randomly: bool = True) -> Accuracy:
    """Fit ten runs that the tool chooses, and judge the rest; ``randomly``: random tens too."""
    chosen = [one.row for one in propose(group.believe(nothing_measured(settings)), RUNS, rule="accuracy")]
    rest = np.setdiff1d(np.arange(len(group.runs)), chosen)
    result = fit(group.measured(chosen), settings)
    belief = group.believe(result.posterior)
    low_s, high_s = belief.interval_s(LEVEL)
    truth = group.measured_s
    moved = [one.constant.name for one in result.constants if one.refused is None]
    tens = errors_of_random_tens(group.linear, TENS if randomly else 1)
    return Accuracy(
        name=group.name,
        source=group.source,
        runs=len(group.runs),
        before=_median(group.belief.time_s()[rest] / truth[rest]),
        after=_median(belief.time_s()[rest] / truth[rest]),
        random=_random_error(group) if randomly else float("nan"),
        lucky=float(np.quantile(tens, 0.05)),
        luckiest=float(tens.min()),
        inside=float(np.mean((low_s <= truth) & (truth <= high_s), where=np.isin(np.arange(len(truth)), rest))),
        width=float(np.median((high_s - low_s)[rest] / belief.time_s()[rest]) / 2),
        rest=len(rest),
        fitted=", ".join(moved) or "none",
    )


def _random_error(group: Group, draws: int = 3) -> float:
    """Return the error of the rest after ten runs drawn at random, as a mean over draws."""
    errors = []
    for seed in range(draws):
        chosen = np.random.default_rng(seed).choice(len(group.runs), RUNS, replace=False)
        rest = np.setdiff1d(np.arange(len(group.runs)), chosen)
        belief = group.believe(fit(group.measured(list(chosen))).posterior)
        errors.append(_median(belief.time_s()[rest] / group.measured_s[rest]))
    return float(np.mean(errors))


def _median(ratio: Floats) -> float:
    return float(np.median(np.abs(ratio - 1)))


def regrets(group: Group) -> Curves:
    """Replay the search for the fastest run of a group."""
    logs = np.log(group.measured_s)
    rows: list[int] = []
    chosen = [group.regret(group.belief.log_time)]
    for _ in range(RUNS):
        known = _conditioned(group.belief, rows, logs)
        rows.append(propose(known, 1, known=rows)[0].row)
        chosen.append(group.regret(_conditioned(group.belief, rows, logs).log_time))
    drawn = []
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(len(logs))[:LONGEST]
        curve = [
            group.regret(_conditioned(group.belief, list(order[:n]), logs).log_time) for n in range(len(order) + 1)
        ]
        drawn.append(curve + [curve[-1]] * (LONGEST + 1 - len(curve)))
    return Curves(chosen=np.array(chosen), drawn=np.mean(drawn, axis=0), used=_used(group))


def _used(group: Group) -> Floats:
    """Return the regret of the tool as it is used: everything fitted anew after every run."""
    rows: list[int] = []
    belief, curve = group.belief, [group.regret(group.belief.log_time)]
    for _ in range(RUNS):
        rows.append(propose(belief, 1, known=rows)[0].row)
        belief = group.believe(fit(group.measured(rows)).posterior)
        curve.append(group.regret(belief.log_time))
    return np.array(curve)


def _conditioned(belief: Belief, rows: Sequence[int], logs: Floats) -> Belief:
    """Return a belief after some runs, slopes left where they are."""
    if not rows:
        return belief
    seen = list(rows)
    inner = belief.covariance[np.ix_(seen, seen)] + belief.noise * np.eye(len(seen))
    gain = np.linalg.solve(inner, belief.covariance[seen]).T
    return replace(
        belief,
        log_time=belief.log_time + gain @ (logs[seen] - belief.log_time[seen]),
        covariance=belief.covariance - gain @ belief.covariance[seen],
    )


if __name__ == "__main__":
    sys.exit(main())
