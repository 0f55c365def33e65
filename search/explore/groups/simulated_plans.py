"""Event-level steps of plans on groups of nodes, as rows, and the number that a leaderboard needs."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from forerun.search.board.rows import GIB, Row, rows_from
from forerun.search.explore.flat.variants import folded_rows
from forerun.search.explore.groups.group_plans import GroupPlan
from forerun.search.order.ideas import FAR, Ranked, chosen_together, degrees
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

    Raises
    ------
    RequestError
        The strategy is illegal, its stages do not fit the groups, or contention is requested.
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


EVALUATIONS = 100
"""Most simulated steps: 10 to 500 ms each."""
Played = Callable[[int], None]
"""Called with the number of steps simulated so far."""


@dataclass(slots=True, kw_only=True)
class SimulatedPlans:
    """Rows of simulated plans, and the reason for the end of the simulation."""

    setting: Setting
    rows: dict[Strategy, Row] = field(default_factory=dict)
    worth: dict[Strategy, float] = field(default_factory=dict)
    stopped: str = "every class of degrees was tried"

    def ranked(self) -> list[Ranked]:
        """Return the feasible strategies by their ranking time."""
        rows = (row for row in self.rows.values() if row.fits)
        order = sorted(rows, key=lambda row: (self.worth[row.strategy], row.name))
        return [
            Ranked(row.strategy, self.worth[row.strategy], row.step_time_s, row.peak_memory_gib * GIB) for row in order
        ]

    def best(self, top: int) -> tuple[Row, ...]:
        """Return the first ``top`` rows of the leaderboard."""
        return folded_rows(self.setting, self.ranked(), lambda strategies: [self.rows[one] for one in strategies], top)

    def last_s(self, top: int) -> float:
        """Return the time above which no further plan changes the first ``top`` rows; infinite if any plan may."""
        kept = self.best(top)
        if len(kept) < top:
            return math.inf
        ranked, last_s = self.ranked(), self.worth[kept[-1].strategy]
        near_s = (1 + FAR) * ranked[0].key
        # A new idea near the best ranks before further strategies of known ideas.
        near = {degrees(one.strategy) for one in ranked if one.key <= near_s}
        return last_s if self.setting.request.all_variants or len(near) >= top else max(last_s, near_s)


def simulated(
    setting: Setting,
    plans: Iterable[GroupPlan],
    *,
    play: Callable[[GroupPlan], Row],
    worth: Callable[[Row], float],
    evaluations: int = EVALUATIONS,
    played: Played | None = None,
) -> SimulatedPlans:
    """Simulate plans until no further plan changes the rows of ``setting``.

    Parameters
    ----------
    setting
        Request with all defaults.
    plans
        Plans in the order of their lower bounds.
    play
        Function from a plan to its row.
    worth
        Function from a row to its ranking seconds, at least those of its step.
    evaluations
        Most plans to simulate once a plan fits.
    played
        Progress callback with the number of simulated plans.
    """
    done = SimulatedPlans(setting=setting)
    wanted = chosen_together(setting.top)
    for plan in plans:
        if plan.least_s > done.last_s(wanted):
            done.stopped = "no other plan can be faster"
            break
        if len(done.rows) >= evaluations and done.ranked():
            done.stopped = f"{evaluations} were simulated"
            break
        row = done.rows[plan.strategy] = play(plan)
        done.worth[row.strategy] = worth(row)
        if played is not None:
            played(len(done.rows))
    return done
