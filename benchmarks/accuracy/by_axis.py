"""Which axis of a strategy the order errs on, and which groups of runs lose most.

    python benchmarks/accuracy/by_axis.py DIR [--out FILE]

DIR holds CSV files of the schema in docs/measured-runs.md. Two tables are of slopes: how much log(predicted / measured)
rises per doubling of an axis (switches: when it is on) among runs of a table that differ in nothing but what is listed,
by robust regression, with standard errors. In the first, runs share model, devices and batch, so that dp is what the
other degrees leave: +1 for tp says that tensor ranks are predicted 1 % slower per doubling than replicas in their
place. In the second they share the model alone. An axis with the same sign in most tables lacks a mechanism.
The last table is of the groups that lose most pairs and regret.
"""

import argparse
import datetime
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from targets import no_test

from forerun.search.measured.validate import MeasuredRun, Predictions, load_runs, metrics_of, orders_of, predict
from forerun.spaces.strategies import Recompute

Floats = NDArray[np.float64]
Axis = Callable[[MeasuredRun], float]

AXES: Mapping[str, Axis] = {
    "tp": lambda run: np.log2(run.strategy.tp),
    "pp": lambda run: np.log2(run.strategy.pp),
    "vpp": lambda run: np.log2(run.strategy.vpp),
    "cp": lambda run: np.log2(run.strategy.cp),
    "ep": lambda run: np.log2(run.strategy.ep),
    "mbs": lambda run: np.log2(run.strategy.mbs),
    "zero 1": lambda run: float(run.strategy.zero >= 1),
    "zero 3": lambda run: float(run.strategy.zero >= 3),
    "sp": lambda run: float(run.strategy.sp),
    "full recompute": lambda run: float(run.strategy.recompute == Recompute.FULL),
}
ACROSS: Mapping[str, Axis] = {
    "devices": lambda run: np.log2(run.strategy.devices),
    "batch": lambda run: np.log2(run.context.workload.global_batch),
    "sequence": lambda run: np.log2(run.context.workload.seq_len),
    **AXES,
}
HUBER, ROUNDS, LEAST_STEP, FEWEST = 1.345, 50, 1e-4, 8
"""Errors beyond so many deviations count less (Huber's 1.345: 95 % efficient on normal errors); iterations; least
deviation; least runs of a table."""
WORST = 10


def main() -> None:
    """Predict and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="also write the tables there, as Markdown")
    args = parser.parse_args()
    predictions = predict(load_runs(sorted(args.folder.glob("*.csv"))).runs)
    lines = [f"# The order of strategies by axis, {datetime.date.today().isoformat()}", ""]
    lines += ["Per cent that predicted over measured time rises per doubling (± standard error), by table", ""]
    lines += ["Same model, devices and batch: beside dp, which is what the others leave", ""]
    lines += slopes(predictions, AXES, lambda run: run.group)
    lines += ["", "Same model alone", ""]
    lines += slopes(predictions, ACROSS, _kind)
    lines += ["", f"Groups that lose most, of {len(orders_of(predictions, range(len(predictions.runs))))}", ""]
    lines += losses(predictions)
    print("\n".join(lines))
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")


def _kind(run: MeasuredRun) -> str:
    context = run.context
    parts = (context.framework.name, context.cluster.device.name, run.cells["model"], context.workload.precision)
    return "|".join(parts)


def slopes(predictions: Predictions, axes: Mapping[str, Axis], group: Callable[[MeasuredRun], str]) -> list[str]:
    """Return a table of slopes by table of runs, and how many of those that are sure rise and fall."""
    tables: dict[str, list[int]] = {}
    for row, run in enumerate(predictions.runs):
        if run.step_time_s and run.outcome == "ok" and predictions.predicted[row] and group(run) and no_test(run):
            tables.setdefault(run.file, []).append(row)
    found = {name: _slopes_of(predictions, rows, axes, group) for name, rows in sorted(tables.items())}
    shown = [axis for axis in axes if any(axis in cells for cells in found.values())]
    lines = [f"| table | runs | {' | '.join(shown)} |", "|---|---:|" + "---:|" * len(shown)]
    for name, cells in found.items():
        if cells:
            texts = [f"{cells[axis][0]:+.1f} ± {cells[axis][1]:.1f}" if axis in cells else "" for axis in shown]
            lines.append(f"| {name} | {len(tables[name])} | {' | '.join(texts)} |")
    for sign, word in ((1, "rise"), (-1, "fall")):
        sure = [sum(sign * c[axis][0] > 2 * c[axis][1] for c in found.values() if axis in c) for axis in shown]
        lines.append(f"| tables that {word} by two errors | | {' | '.join(map(str, sure))} |")
    return lines


def _slopes_of(
    predictions: Predictions, rows: Sequence[int], axes: Mapping[str, Axis], group: Callable[[MeasuredRun], str]
) -> dict[str, tuple[float, float]]:
    """Return slope and error in per cent by axis, of the axes that differ within groups."""
    runs = [predictions.runs[row] for row in rows]
    _, of_group = np.unique([group(run) for run in runs], return_inverse=True)
    measured = np.array([run.step_time_s for run in runs], dtype=np.float64)
    error = _within(np.log(predictions.step_time_s[rows] / measured), of_group)
    names: list[str] = []
    columns = np.empty((len(runs), 0))
    for name, axis in axes.items():
        column = _within(np.array([axis(run) for run in runs], dtype=np.float64), of_group)
        wider = np.column_stack([columns, column])
        if np.linalg.matrix_rank(wider, tol=1e-6) == wider.shape[1]:
            columns, names = wider, [*names, name]
    alone = np.bincount(of_group)[of_group] == 1
    if not names or (~alone).sum() < FEWEST + len(names):
        return {}
    slope, deviation = robust(columns[~alone], error[~alone])
    return {name: (100 * slope[place], 100 * deviation[place]) for place, name in enumerate(names)}


def _within(values: Floats, of_group: NDArray[np.intp]) -> Floats:
    """Return values less the mean of their group."""
    means = np.bincount(of_group, weights=values) / np.bincount(of_group)
    return np.asarray(values - means[of_group])


def robust(columns: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return the coefficients of Huber's regression and their standard errors (sandwich estimate)."""
    weight = np.ones(len(values))
    for _ in range(ROUNDS):
        weighted = (columns * weight[:, None]).T
        found = np.linalg.pinv(weighted @ columns) @ (weighted @ values)
        left = values - columns @ found
        step = max(1.4826 * float(np.median(np.abs(left))), LEAST_STEP)
        weight = np.minimum(1.0, HUBER * step / np.maximum(np.abs(left), LEAST_STEP * LEAST_STEP))
    bread = np.linalg.pinv((columns * weight[:, None]).T @ columns)
    scores = (weight * left)[:, None] * columns
    spread = bread @ (scores.T @ scores) @ bread * len(values) / max(len(values) - columns.shape[1], 1)
    return found, np.sqrt(np.diag(spread))


def losses(predictions: Predictions) -> list[str]:
    """Return the groups that lose most pairs or regret, and what their wrong pairs differ in."""
    orders = [one for one in orders_of(predictions, range(len(predictions.runs)))]
    pairs, regret = sum(one.pairs - one.right for one in orders), sum(one.regret1 for one in orders)
    lines = ["| group | strategies | tau | pairs lost, % of all | regret, % of all | wrong pairs differ in |"]
    lines.append("|---|---:|---:|---:|---:|---|")
    for one in sorted(orders, key=lambda one: -(one.pairs - one.right) / pairs - one.regret1 / regret)[:WORST]:
        lost, cost = 100 * (one.pairs - one.right) / pairs, 100 * one.regret1 / regret
        axes = ", ".join(f"{name} {count}" for name, count in _differ(predictions, one.group).most_common(5))
        name = one.group.replace("|", " ")
        lines.append(f"| {name} | {one.runs} | {one.tau:.2f} | {lost:.0f} | {cost:.0f} | {axes} |")
    figures = metrics_of(predictions)
    lines += ["", f"All: tau {figures.kendall_tau:.3f}, pairs {figures.pair_order_pct:.1f} %, "
              f"regret {figures.regret1_pct:.1f} %"]  # fmt: skip
    return lines


def _differ(predictions: Predictions, group: str) -> Counter[str]:
    """Return by how many wrong pairs of a group (more than 5 % apart) every axis differs."""
    rows = [row for row, run in enumerate(predictions.runs) if run.group == group and run.step_time_s]
    count: Counter[str] = Counter()
    axes = {"dp": lambda run: np.log2(run.strategy.dp), **AXES}
    for place, one in enumerate(rows):
        for other in rows[place + 1 :]:
            first, second = (predictions.runs[row].step_time_s or 1.0 for row in (one, other))
            wrong = (first > second) != (predictions.step_time_s[one] > predictions.step_time_s[other])
            if wrong and abs(np.log(first / second)) > np.log(1.05):
                runs = predictions.runs[one], predictions.runs[other]
                count.update(name for name, axis in axes.items() if axis(runs[0]) != axis(runs[1]))
    return count


if __name__ == "__main__":
    main()
