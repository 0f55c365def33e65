"""Both levels of fidelity against measured runs, table by table.

    python benchmarks/fidelities.py RUNS [TABLE ...] [--out benchmarks/results]

RUNS is a directory of tables of measured runs. Every row is predicted by closed forms, event by event, and event by
event with traffic that shares the links of the cluster; the same rows, the same cost rules. ``apart`` is the median
difference of the first two on the rows of a table: where it is small they cannot differ in accuracy.
"""

import argparse
import datetime
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from forerun.search.measured.validate import Metrics, Predictions, load_runs, predict, summarise
from forerun.simulator import ScoreTable, score
from forerun.simulator.events import event_scores
from forerun.spaces.strategies import Context, StrategyTable

Scorer = Callable[[Context, StrategyTable], ScoreTable]
LEVELS: dict[str, Scorer] = {
    "closed forms": score,
    "events": event_scores,
    "with contention": partial(event_scores, contention=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level's figures for a table, and the seconds it took."""

    figures: Metrics
    predictions: Predictions
    seconds: float


def level_of(paths: Sequence[Path], scorer: Scorer) -> Level:
    """Predict the runs of some tables by one level."""
    runs = load_runs(paths)
    start = time.perf_counter()
    predictions = predict(runs.runs, score=scorer)
    seconds = time.perf_counter() - start
    return Level(figures=summarise(runs, predictions).overall, predictions=predictions, seconds=seconds)


def apart(one: Level, other: Level) -> float:
    """Return the median difference of two levels in percent."""
    ratio = other.predictions.step_time_s / one.predictions.step_time_s
    return float(100 * np.nanmedian(np.abs(ratio - 1)))


def cells(levels: Sequence[Level]) -> list[str]:
    """Return the figures of one table: of every kind, all levels side by side."""
    found = []
    for name, form in (
        ("median_ape_pct", ".1f"),
        ("bias_pct", "+.1f"),
        ("kendall_tau", ".3f"),
        ("pair_order_pct", ".1f"),
        ("regret1_pct", ".1f"),
        ("memory_median_ape_pct", ".1f"),
    ):
        values = [getattr(level.figures, name) for level in levels]
        found.append(" / ".join("-" if value is None else f"{value:{form}}" for value in values))
    return found


def main() -> None:
    """Compare, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="directory of tables of measured runs")
    parser.add_argument("tables", nargs="*", help="names of tables (default: all)")
    parser.add_argument("--out", type=Path, help="directory of the dated page")
    args = parser.parse_args()
    paths = sorted(path for path in args.runs.glob("*.csv") if not args.tables or path.stem in args.tables)
    lines, all_s = [], np.zeros(len(LEVELS))
    for path in paths:
        levels = [level_of([path], scorer) for scorer in LEVELS.values()]
        if not levels[0].figures.rows:
            continue
        all_s += [level.seconds for level in levels]
        row = [path.stem, str(levels[0].figures.rows), *cells(levels), f"{apart(*levels[:2]):.2f}"]
        lines.append(f"| {' | '.join(row)} |")
        print(lines[-1], flush=True)
    page = [
        f"# Both levels of fidelity against measured runs, {datetime.date.today()}",
        "",
        f"`python benchmarks/fidelities.py RUNS` on {platform.machine()}, CPython {platform.python_version()}. In "
        f"every cell: {', then '.join(LEVELS)}; they took {', '.join(f'{seconds:.0f}' for seconds in all_s)} s. Errors "
        "of step time are medians, pairs those of a group whose measured times are more than 5 % apart; the last "
        "column is the median difference of closed forms and events.",
        "",
        "| table | rows | error % | bias % | tau | pairs in order % | first pick slower by % | memory error % "
        "| apart % |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *lines,
    ]
    if args.out:
        (args.out / f"{datetime.date.today()}-fidelities.md").write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
