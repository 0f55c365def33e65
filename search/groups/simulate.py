"""One strategy on a cluster of groups of nodes that differ."""

import dataclasses

import numpy as np

from forerun.search.board.rows import Row, rows_of
from forerun.search.request.request import Setting, legal_strategy
from forerun.simulator.events import EventResult, simulate
from forerun.simulator.events.step.groups import group_costs, group_scores
from forerun.simulator.events.step.simulate import simulate_costs
from forerun.simulator.events.step.steady import step_figures
from forerun.simulator.score_table import TIME_PARTS, ScoreTable
from forerun.spaces.clusters import stage_groups
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Strategy
from forerun.spaces.strategies.stage_laws import broken_laws


def simulate_groups(setting: Setting, text: str, *, contention: bool = False) -> tuple[Row, EventResult]:
    """Return a strategy's row and its step. The row's memory is that of the stage with least room on its device, its
    MFU the share of the peak of all devices, its cost by what each group costs.

    Raises:
        RequestError: the strategy is illegal, the groups do not hold its stages, or contention is asked for.
    """
    strategy, context = legal_strategy(setting, text), setting.context
    for own in context.on_groups:
        own.cluster.device.peak(context.workload.precision)  # refuses precisions that the device does not have
        laws = broken_laws(strategy, own)
        if laws:
            raise RequestError(f"strategy {strategy} is not legal on {own.cluster.name}: {laws[0]}")
    result = simulate(context, strategy, contention=contention)
    return _row(setting, strategy, *group_scores(context, strategy, result)), result


def quick_row(setting: Setting, strategy: Strategy) -> Row:
    """Return the row of a 1F1B strategy that is legal on every group, a long step extended from shorter ones."""
    costs = group_costs(setting.context, strategy)
    figures = step_figures(costs)
    # Under 1F1B the warm-up of the first stages is the most that is ever in flight.
    few = dataclasses.replace(costs.shape, microbatches=min(costs.shape.microbatches, 2 * strategy.pp))
    filled = simulate_costs(dataclasses.replace(costs, shape=few))
    tightest, scores = group_scores(setting.context, strategy, filled)
    time_s = {part: np.array([seconds]) for part, seconds in zip(TIME_PARTS, figures.time_s, strict=True)}
    scores = dataclasses.replace(scores, step_time_s=np.array([figures.step_time_s]), time_s=time_s)
    return _row(setting, strategy, tightest, scores)


def _row(setting: Setting, strategy: Strategy, tightest: int, scores: ScoreTable) -> Row:
    """Return the row of scores whose memory is that of a stage on group ``tightest``."""
    context = setting.context
    on = context.on_groups[tightest]
    (row,) = rows_of(on, [strategy], usd_per_gpu_hour=setting.usd_per_gpu_hour, score=lambda *_: scores)
    mfu = row.mfu * on.cluster.device.peak(context.workload.precision) / _mean_peak(setting, strategy)
    return dataclasses.replace(row, mfu=mfu)


def _mean_peak(setting: Setting, strategy: Strategy) -> float:
    """Return the mean peak in FLOP/s of the devices that hold the stages."""
    cluster, precision = setting.context.cluster, setting.context.workload.precision
    homes = stage_groups(cluster, strategy.pp, strategy.dp * strategy.tp * strategy.cp)
    return sum(cluster.groups[group].cluster.device.peak(precision) for group in homes) / len(homes)
