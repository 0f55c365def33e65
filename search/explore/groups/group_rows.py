"""One strategy on a cluster of groups of nodes that differ."""

import dataclasses

from forerun.search.board.rows import Row, rows_from
from forerun.search.explore.groups.group_plans import GroupPlan
from forerun.search.request.setting import Setting, legal_strategy
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.value import Assignment
from forerun.simulator.events import EventResult, simulate
from forerun.simulator.events.step.rescore import event_row
from forerun.simulator.events.step.steady import StepFigures, figures_of, step_figures
from forerun.spaces.clusters import stage_groups
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Strategy
from forerun.spaces.strategies.stage_laws import broken_laws


def simulate_groups(setting: Setting, text: str, *, contention: bool = False) -> tuple[Row, EventResult]:
    """Return a strategy's row and its step.

    The row has the memory of the stage with the least free memory, MFU over the peak of all devices, and cost by the
    prices of the groups.

    Raises:
        RequestError: the strategy is illegal, its stages do not fit the groups, or contention is requested.
    """
    strategy, context = legal_strategy(setting, text), setting.context
    for group_context in context.on_groups:
        group_context.cluster.device.peak(context.workload.precision)  # refuses precisions that the device lacks
        laws = broken_laws(strategy, group_context)
        if laws:
            raise RequestError(f"strategy {strategy} is not legal on {group_context.cluster.name}: {laws[0]}")
    result = simulate(context, strategy, contention=contention)
    return _row(setting, strategy, assign(context, strategy), figures_of(result)), result


def planned_row(setting: Setting, plan: GroupPlan) -> Row:
    """Return the row of a plan, a long step extended from shorter ones."""
    return _row(setting, plan.strategy, plan.assignment, step_figures(plan.costs))


def _row(setting: Setting, strategy: Strategy, assignment: Assignment, figures: StepFigures) -> Row:
    """Return the row of a simulated step, with the memory limit of its fullest group."""
    context, scores = setting.context, event_row(assignment, figures)
    on = assignment.contexts[assignment.group_of_rank[int(scores.peak_stage[0])]]
    (row,) = rows_from(on, [strategy], scores, usd_per_gpu_hour=setting.usd_per_gpu_hour)
    mfu = row.mfu * on.cluster.device.peak(context.workload.precision) / _mean_peak(setting, strategy)
    return dataclasses.replace(row, mfu=mfu)


def _mean_peak(setting: Setting, strategy: Strategy) -> float:
    """Return the mean peak in FLOP/s of the devices of the stages."""
    cluster, precision = setting.context.cluster, setting.context.workload.precision
    groups = stage_groups(cluster, strategy.pp, strategy.dp * strategy.tp * strategy.cp)
    return sum(cluster.groups[group].cluster.device.peak(precision) for group in groups) / len(groups)
