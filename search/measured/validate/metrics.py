"""Accuracy and order of predictions: figures of the quality of a ranking.

Accuracy is over runs with a measured step time; order is over groups of at least four strategies. Every run is one
row, but for order runs of a group that repeat one strategy count once, with the medians of their times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.search.measured.validate.intervals import Intervals
from forerun.search.measured.validate.predict import Predictions

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

SMALLEST_GROUP = 4
"""Fewest strategies of a group in figures of order."""
STRATEGY_COLUMNS = (
    "framework",
    "attention",
    "dp",
    "tp",
    "pp",
    "cp",
    "ep",
    "virtual_pp",
    "schedule",
    "sequence_parallel",
    "zero_stage",
    "micro_batch",
    "recompute",
    "strategy",
)
"""Columns whose equality marks runs of a group as repeats of one strategy."""
NOISE = 0.05
"""Difference of times below which order is not judged: the spread of repeats of one run."""
WIDE_NOISE = 0.25
"""This difference on noisy clusters (spread of one layout in the ultrascale sweep)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOrder:
    """Order of one group of ``runs`` distinct strategies.

    ``pairs``, ``right``: pairs that differ by more than the noise, and rightly ordered ones; ``wide_pairs``,
    ``wide_right`` likewise at ``WIDE_NOISE``. ``regret1``: slowdown of the run predicted fastest relative to the best;
    ``regret3``: of the best of the three predicted fastest.
    """

    group: str
    runs: int
    tau: float
    pairs: int
    right: int
    wide_pairs: int
    wide_right: int
    regret1: float
    regret3: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Figures over some runs, in per cent; None without data.

    ``rows``: runs with measured and predicted step time; ``covered_pct``: their share of all measured rows, including
    unmapped rows. ``within_interval_pct``: runs whose step is within the predicted interval (80 % expected).
    """

    rows: int
    covered_pct: float | None
    mape_pct: float | None
    median_ape_pct: float | None
    bias_pct: float | None
    within_interval_pct: float | None
    groups: int
    kendall_tau: float | None
    pair_order_pct: float | None
    wide_pair_order_pct: float | None
    regret1_pct: float | None
    regret1_median_pct: float | None
    regret1_max_pct: float | None
    regret3_pct: float | None
    memory_rows: int
    memory_mape_pct: float | None
    memory_median_ape_pct: float | None
    oom_rows: int
    oom_recall_pct: float | None
    oom_specificity_pct: float | None


def metrics_of(
    predictions: Predictions,
    rows: Sequence[int] | Rows | None = None,
    *,
    noise: float = NOISE,
    measured: int | None = None,
    intervals: Intervals | None = None,
) -> Metrics:
    """Return the figures over some rows (default: all).

    ``noise``: share by which two measured times must differ for their order to count; ``measured``: measured rows
    including unmapped ones; ``intervals``: intervals of all predictions, if they are judged.
    """
    chosen = np.arange(len(predictions.runs)) if rows is None else np.asarray(rows, dtype=np.intp)
    timed = timed_rows(predictions, chosen)
    error = time_error(predictions, timed)
    orders = orders_of(predictions, chosen, noise=noise)
    memory = memory_error(predictions, timed)
    memory = memory[np.isfinite(memory)]
    outcome = np.array([predictions.runs[row].outcome for row in chosen])
    known, oom = predictions.predicted[chosen], predictions.oom[chosen]
    bad, good = known & (outcome == "oom"), known & (outcome == "ok")
    labelled = bool((outcome == "oom").any())
    return Metrics(
        rows=len(timed),
        covered_pct=_percent(len(timed) / measured) if measured else None,
        mape_pct=_reduced(np.mean, np.abs(error)),
        median_ape_pct=_reduced(np.median, np.abs(error)),
        bias_pct=_reduced(np.median, error),
        within_interval_pct=None if intervals is None else _reduced(np.mean, _within(predictions, timed, intervals)),
        groups=len(orders),
        kendall_tau=_tau(orders),
        pair_order_pct=_share(sum(o.right for o in orders), sum(o.pairs for o in orders)),
        wide_pair_order_pct=_share(sum(o.wide_right for o in orders), sum(o.wide_pairs for o in orders)),
        regret1_pct=_reduced(np.mean, np.array([o.regret1 for o in orders])),
        regret1_median_pct=_reduced(np.median, np.array([o.regret1 for o in orders])),
        regret1_max_pct=_reduced(np.max, np.array([o.regret1 for o in orders])),
        regret3_pct=_reduced(np.mean, np.array([o.regret3 for o in orders])),
        memory_rows=len(memory),
        memory_mape_pct=_reduced(np.mean, np.abs(memory)),
        memory_median_ape_pct=_reduced(np.median, np.abs(memory)),
        oom_rows=int(bad.sum()),
        oom_recall_pct=_share(int((bad & oom).sum()), int(bad.sum())),
        oom_specificity_pct=_share(int((good & ~oom).sum()), int(good.sum())) if labelled else None,
    )


def timed_rows(predictions: Predictions, rows: Sequence[int] | Rows) -> Rows:
    """Return the rows with both a measured and a predicted step time."""
    known = predictions.predicted
    keep = [
        row
        for row in rows
        if predictions.runs[row].outcome == "ok" and predictions.runs[row].step_time_s is not None and known[row]
    ]
    return np.array(keep, dtype=np.intp)


def time_error(predictions: Predictions, rows: Rows) -> Floats:
    """Return predicted over measured step time minus 1; NaN if not measured."""
    measured = np.array([predictions.runs[row].step_time_s or np.nan for row in rows], dtype=float)
    return np.asarray(predictions.step_time_s[rows] / measured - 1.0, dtype=float)


def _within(predictions: Predictions, rows: Rows, intervals: Intervals) -> Floats:
    """Return 1.0 for rows measured within their interval, else 0.0; rows without an interval are omitted."""
    rows = rows[np.isfinite(intervals.low_s[rows])]
    measured = np.array([predictions.runs[row].step_time_s or np.nan for row in rows], dtype=float)
    within: Floats = ((intervals.low_s[rows] <= measured) & (measured <= intervals.high_s[rows])).astype(np.float64)
    return within


def memory_error(predictions: Predictions, rows: Rows) -> Floats:
    """Return predicted over measured peak memory minus 1; NaN if not measured."""
    measured = np.array([predictions.runs[row].peak_memory_bytes or np.nan for row in rows], dtype=float)
    return np.asarray(predictions.comparable_memory_bytes[rows] / measured - 1.0, dtype=float)


def orders_of(predictions: Predictions, rows: Sequence[int] | Rows, *, noise: float = NOISE) -> list[GroupOrder]:
    """Return the order of every group of at least ``SMALLEST_GROUP`` strategies, by name."""
    members: dict[str, dict[tuple[str, ...], list[int]]] = {}
    for row in timed_rows(predictions, rows):
        run = predictions.runs[row]
        if run.group:
            strategy = tuple(run.cells[column] for column in STRATEGY_COLUMNS)
            members.setdefault(run.group, {}).setdefault(strategy, []).append(int(row))
    return [
        order_of(group, *_medians(predictions, list(repeats.values())), noise)
        for group, repeats in sorted(members.items())
        if len(repeats) >= SMALLEST_GROUP
    ]


def _medians(predictions: Predictions, repeats: Sequence[list[int]]) -> tuple[Floats, Floats]:
    """Return predicted and measured seconds of strategies, each the median of its repeats."""
    predicted = [np.median(predictions.step_time_s[rows]) for rows in repeats]
    measured = [np.median([predictions.runs[row].step_time_s or np.nan for row in rows]) for rows in repeats]
    return np.array(predicted, dtype=float), np.array(measured, dtype=float)


def order_of(group: str, predicted_s: Floats, measured_s: Floats, noise: float) -> GroupOrder:
    """Return the order of one group."""
    pairs, right = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    for row in range(len(measured_s) - 1):  # one strategy against the later ones: all pairs at once would exceed memory
        one, others = measured_s[row], measured_s[row + 1 :]
        far = np.maximum(one, others) / np.minimum(one, others) - 1.0 > [[noise], [WIDE_NOISE]]
        agree = np.sign(predicted_s[row] - predicted_s[row + 1 :]) == np.sign(one - others)
        pairs, right = pairs + far.sum(axis=1), right + (far & agree).sum(axis=1)
    from scipy.stats import kendalltau  # imported late: it takes a third of a second

    ranked, best = np.argsort(predicted_s, kind="stable"), float(measured_s.min())
    return GroupOrder(
        group=group,
        runs=len(measured_s),
        tau=float(kendalltau(predicted_s, measured_s).statistic),
        pairs=int(pairs[0]),
        right=int(right[0]),
        wide_pairs=int(pairs[1]),
        wide_right=int(right[1]),
        regret1=float(measured_s[ranked[0]]) / best - 1.0,
        regret3=float(measured_s[ranked[:3]].min()) / best - 1.0,
    )


def _tau(orders: Sequence[GroupOrder]) -> float | None:
    """Return the mean tau; groups without a tau (equal predictions) are omitted."""
    taus = [order.tau for order in orders if np.isfinite(order.tau)]
    return float(np.mean(taus)) if taus else None


def _reduced(how: Callable[[Floats], np.floating], values: Floats) -> float | None:
    return _percent(float(how(values))) if len(values) else None


def _share(part: int, total: int) -> float | None:
    return _percent(part / total) if total else None


def _percent(share: float) -> float:
    return 100.0 * share
