"""Goodput of rows (training time with failures and restarts), and the probability of ending in time."""

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.board.rows import AnyRow, R
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.setting import Setting
from forerun.simulator.costs.power import WAITING, power_limit_w
from forerun.spaces.units import format_seconds


def with_goodput(setting: Setting[AnyContext], rows: tuple[R, ...]) -> tuple[R, ...]:
    """Return rows with the goodput of their trainings if requested."""
    if setting.interrupted is None:
        return rows
    return tuple(dataclasses.replace(row, goodput=_goodput(setting, row)) for row in rows)


def days_of(row: AnyRow) -> float:
    """Return the days of the whole training, including interruptions if predicted."""
    return (row.goodput or {}).get("train_days") or row.train_days or 0.0


def usd_of(row: AnyRow) -> float:
    """Return the cost of the whole training in USD, including interruptions if predicted; 0 without a price."""
    return (row.goodput or {}).get("train_cost_usd") or row.train_cost_usd or 0.0


def goodput_note(setting: Setting[AnyContext], rows: Sequence[AnyRow], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on effective and lost time of the first row; none without goodput."""
    row = rows[0]
    goodput = row.goodput
    if goodput is None:
        return ()
    lost = ", ".join(
        f"{name.replace('_', ' ')} {share:.1%}"
        for name in ("recovery", "lost_work", "checkpoints", "waiting_for_nodes")
        if (share := goodput[name]) and share >= 0.0005
    )
    days = f"; {goodput['train_days']:,.1f} days with failures" if row.train_days is not None else ""
    usd = f", {goodput['train_cost_usd']:,.0f} USD" if "train_cost_usd" in goodput else ""
    energy = f", {goodput['train_mwh']:,.1f} MWh of the GPUs" if "train_mwh" in goodput else ""
    between, every_s = goodput.get("between_failures_s"), goodput["checkpoint_interval_s"]
    failures = "no failure" if between is None else f"one failure per {format_seconds(between)}"
    checkpoints = "no checkpoint is needed"
    if every_s is not None:
        checkpoints = f"one checkpoint of {goodput['checkpoint_write_s']:.1f} s per {format_seconds(every_s)}"
    useful = f"{goodput['effective_time']:.1%} of the time" + (f" ({lost})" if lost else "")
    return (f"goodput on {row.gpus:,} GPUs: {useful}; {failures}, {checkpoints}{days}{usd}{energy}",)


def _goodput(setting: Setting[AnyContext], row: AnyRow) -> dict[str, float | None]:
    assert setting.interrupted is not None
    goodput = setting.interrupted.on(row.gpus, step_s=row.step_time_s)
    data: dict[str, float | None] = {
        "effective_time": goodput.effective,
        "tokens_per_s": row.throughput * goodput.effective,
        "checkpoint_interval_s": goodput.interval_s,
        "checkpoint_write_s": goodput.write_s,
        **({} if goodput.between_failures_s is None else {"between_failures_s": goodput.between_failures_s}),
        **goodput.shares,
    }
    if row.train_days is not None:
        data["train_days"] = row.train_days * goodput.slowdown
    if row.train_cost_usd is not None:
        data["train_cost_usd"] = row.train_cost_usd * goodput.slowdown
    if row.train_mwh is not None and row.watts_per_gpu is not None:
        waiting_w = WAITING * (power_limit_w(setting.context.cluster) or 0.0)
        steps = goodput.effective + goodput.shares["lost_work"]
        data["train_mwh"] = row.train_mwh * goodput.slowdown * (steps + (1 - steps) * waiting_w / row.watts_per_gpu)
    return data


SURE = 0.8
"""Probability of ending in time from which a number of GPUs is enough."""
_NORMAL = NormalDist()


def probability_in_time(row: AnyRow, days: float) -> float | None:
    """Compute the probability that a training ends within some days, with failures if they were predicted.

    Steps are log-normal, with the row's interval. The result is None if the length of the training or the interval is
    unknown.
    """
    spread = _spread(row)
    if spread is None or not days_of(row):
        return None
    bias, sigma = spread
    excess = math.log(days / days_of(row)) - bias
    return _NORMAL.cdf(excess / sigma) if sigma else float(excess >= 0)


def sure_days(row: AnyRow) -> float:
    """Return the days within which a training ends with probability ``SURE``.

    Without an interval these are the predicted days.
    """
    spread = _spread(row)
    if spread is None:
        return days_of(row)
    bias, sigma = spread
    return days_of(row) * math.exp(bias + _NORMAL.inv_cdf(SURE) * sigma)


def _spread(row: AnyRow) -> tuple[float, float] | None:
    """Return the mean and deviation of the logarithm of measured over predicted steps."""
    low, high, level = row.step_time_low_s, row.step_time_high_s, row.interval_level
    if low is None or high is None or level is None or not low > 0:
        return None
    ends = math.log(low / row.step_time_s), math.log(high / row.step_time_s)
    return sum(ends) / 2, (ends[1] - ends[0]) / (2 * _NORMAL.inv_cdf((1 + level) / 2))
