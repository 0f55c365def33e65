"""What the first run that does not run out of memory costs, when measured strategies are tried in the order of search.

    python benchmarks/accuracy/launch_order.py FOLDER

Groups are those of the measured tables of FOLDER in which some strategies ran and some ran out of memory. They are
tried as a leaderboard shows them: by what a launch is worth (``forerun.search.request.preferences``), for several
prices ``c`` of a failed start, without variants of a row above (``forerun.search.order.ideas``); those that are
predicted not to fit, which a search does not show, come last.
The cost is how much slower the first that ran is than the best, and ``PRICE`` for every failed start before it.
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from forerun.search.measured.validate import MeasuredRun, load_runs
from forerun.search.order.ideas import ALIKE, degrees
from forerun.search.order.worth import launch_factor, odds_of_failure
from forerun.simulator import score
from forerun.spaces.strategies import Strategy, table_of

PRICE = 0.05
PRICES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.5)
SMALLEST = 4


def main() -> None:
    """Print a line for every price."""
    groups: dict[str, list[MeasuredRun]] = defaultdict(list)
    for run in load_runs(sorted(Path(sys.argv[1]).glob("*.csv"))).runs:
        if run.group and (run.outcome == "oom" or run.step_time_s):
            groups[run.group].append(run)
    tried = [_predicted(runs) for runs in groups.values() if len(runs) >= SMALLEST]
    tried = [group for group in tried if 0 < np.isnan(group[2]).sum() < len(group[2])]
    print(f"{len(tried)} groups, {sum(len(measured) for *_, measured in tried)} runs")
    for price in PRICES:
        costs, failed = zip(*(_cost(*group, price) for group in tried), strict=True)
        print(f"c {price:4.2f}: cost {np.mean(costs):.1%}, median {np.median(costs):.1%}, {np.mean(failed):.2f} failed")


def _predicted(runs: list[MeasuredRun]) -> tuple[list[Strategy], np.ndarray, np.ndarray]:
    """Return the strategies; predicted device-seconds, odds of failure, by how much longer it counts for what practice
    prefers and whether it does not fit [4, N]; and measured device-seconds [N], nan: ran out."""
    worth = []
    for run in runs:
        table = table_of([run.strategy])
        scores = score(run.context, table)
        seconds, odds = scores.step_time_s[0] * run.strategy.devices, odds_of_failure(run.context, scores)[0]
        worth.append((seconds, odds, launch_factor(run.context, table)[0], float(not scores.fits[0])))
    measured = [run.strategy.devices * (run.step_time_s or 0.0) if run.outcome == "ok" else np.nan for run in runs]
    return [run.strategy for run in runs], np.array(worth).T, np.array(measured)


def _cost(strategies: list[Strategy], worth: np.ndarray, measured: np.ndarray, price: float) -> tuple[float, int]:
    """Return what trying in order costs, and how many starts fail."""
    seconds, odds, longer, beyond = worth
    key = seconds * (longer + price * odds)
    order = np.lexsort((key, beyond))
    shown: list[int] = []
    row_of: dict[tuple[int, ...], float] = {}
    for place in order.tolist():
        idea = degrees(strategies[place])
        if key[place] > (1 + ALIKE) * row_of.get(idea, 0.0):
            row_of[idea] = key[place]
            shown.append(place)
    tried = measured[shown]
    failed = int(np.argmax(~np.isnan(tried)))
    return tried[failed] / np.nanmin(measured) - 1 + PRICE * failed, failed


if __name__ == "__main__":
    main()
