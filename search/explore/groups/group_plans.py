"""Division of the layers of a model among stages on groups of nodes that differ, with a bound on the step."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from forerun.search.explore.samplers.degree_classes import degree_classes
from forerun.search.explore.samplers.planner import Planner
from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.assignment.least import least_step_s
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.assignment.value import Assignment
from forerun.simulator.core.stage_options import LeastParts, StageOptions, least_parts, option_costs
from forerun.simulator.score_table import Floats
from forerun.spaces.clusters import stage_groups
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy, StrategyTable
from forerun.spaces.strategies.stage_laws import broken_laws
from forerun.spaces.strategies.staged_space import StagedSpace

ROUNDING = 1e-9
"""Relative rounding difference between sums in different order."""


def least_plan_s(context: Context, table: StrategyTable) -> Floats:
    """Return lower bounds [N] of the plans of N classes in s; infinite if the groups have no plan.

    With ``c_j`` the seconds of a microbatch on stage ``j`` and ``m`` microbatches, a step of 1F1B takes at least
    ``c_0 + ... + c_(j-1) + m c_j`` for every ``j``. Any weighted mean of these bounds is a bound too, and linear in
    the layers of the stages: each layer counts on its cheapest stage. With the chosen weights an average layer
    counts equally on every stage, so the bound is exact for equal, divisible layers.
    """
    parts = [least_parts(group_context, table) for group_context in context.on_groups]
    degrees = zip(*(table.column(axis).tolist() for axis in ("pp", "dp", "tp", "cp", "mbs")), strict=True)
    bounds_s = np.full(len(table), np.inf)
    for row, (pp, dp, tp, cp, mbs) in enumerate(degrees):
        groups = groups_of_stages(context, pp, dp * tp * cp)
        if groups is not None and any(part.fits[row] for part in parts):
            microbatches = context.workload.global_batch / (dp * mbs)
            bounds_s[row] = _least_s(parts, row, groups, microbatches) * (1 - ROUNDING)
    return bounds_s


def groups_of_stages(context: Context, pp: int, devices: int) -> tuple[int, ...] | None:
    """Return the group of every stage with a number of devices; None if the stages do not fit the groups."""
    try:
        return stage_groups(context.cluster, pp, devices)
    except RequestError:
        return None


def _least_s(parts: Sequence[LeastParts], row: int, groups: Sequence[int], microbatches: float) -> float:
    """Return the bound of one class: the largest of the bounds by passes, launches and traffic."""
    passes = [part.passes_s[:, row] for part in parts]
    launches = [np.array([part.host_s[row], 0.0, 0.0]) for part in parts]
    once = [float(part.once_s[row]) for part in parts]
    return max(
        _in_a_row_s(passes, groups, microbatches),
        _in_a_row_s(launches, groups, microbatches),
        _busiest_s(passes, once, groups, microbatches),
    )


def _in_a_row_s(passes: Sequence[Floats], groups: Sequence[int], microbatches: float) -> float:
    """Return the mean bound of a pipeline; ``passes``: seconds of every block [B] on each group."""
    wholes = [float(each.sum()) for each in passes]
    if not all(wholes):
        return 0.0
    behind, factors = 0.0, list[float]()
    for group in reversed(groups):
        factors.append(max(1 / wholes[group], behind))
        behind += (factors[-1] - behind) / microbatches
    return _counted(passes, groups, factors[::-1]) / behind


def _busiest_s(passes: Sequence[Floats], once: Sequence[float], groups: Sequence[int], microbatches: float) -> float:
    """Return the mean bound of stages from their own microbatches and their work ``once`` a step."""
    wholes = [microbatches * float(each.sum()) + more for each, more in zip(passes, once, strict=True)]
    factors = [1 / wholes[group] for group in groups]
    counted = microbatches * _counted(passes, groups, factors) + min(once[group] / wholes[group] for group in groups)
    return counted / sum(factors)


def _counted(passes: Sequence[Floats], groups: Sequence[int], factors: Sequence[float]) -> float:
    """Return the least sum of block seconds times stage factors.

    Embedding and head (the last blocks) are on the first and last stage, every other block on its cheapest stage.
    """
    anywhere = np.stack([factor * passes[group] for group, factor in zip(groups, factors, strict=True)])
    return float(anywhere[:, :-2].min(axis=0).sum() + anywhere[0, -2] + anywhere[-1, -1])


PLANS = 2
"""Splits of the layers that are simulated per class of degrees: the ones with the best bounds on the slowest stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A strategy on the groups; ``least_s`` is a lower bound of its step."""

    strategy: Strategy
    least_s: float
    assignment: Assignment
    costs: StepCosts


def ordered_plans(space: StagedSpace) -> Iterator[GroupPlan]:
    """Yield plans of all classes of degrees that fit the groups, in the order of their lower bounds.

    The order depends only on the space. The steps of all plans after a plan are at least its ``least_s``.
    """
    planner = Planner(space, costs=_option_costs)
    classes = iter(degree_classes(space, least=least_plan_s))
    plans: list[tuple[float, str, GroupPlan]] = []
    known: set[Strategy] = set()
    for following in chain(classes, [None]):
        while plans and (following is None or plans[0][0] <= following.least_s):
            yield heappop(plans)[-1]
        if following is None:
            continue
        # The planner divides the layers, so laws of equal stages do not apply.
        dealt = dataclasses.replace(following.strategy, layers_per_stage=_some_layers(space, following.strategy.pp))
        if any(broken_laws(dealt, context) for context in space.context.on_groups):
            continue
        for planned in planner.plans(following.strategy, PLANS):
            if planned.strategy not in known:
                known.add(planned.strategy)
                plan = _plan(space.context, planned.strategy)
                heappush(plans, (plan.least_s, str(plan.strategy), plan))


def _some_layers(space: StagedSpace, pp: int) -> tuple[int, ...]:
    """Divide the layers among ``pp`` stages as evenly as possible."""
    edges = [boundary * space.layers // pp for boundary in range(pp + 1)]
    return tuple(high - low for low, high in itertools.pairwise(edges))


def _plan(context: Context, strategy: Strategy) -> GroupPlan:
    assignment = assign(context, strategy)
    costs = step_costs(assignment)
    return GroupPlan(strategy=strategy, least_s=least_step_s(costs), assignment=assignment, costs=costs)


def _option_costs(context: Context, degree_class: Strategy, options: StageOptions) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the seconds of a microbatch and whether it fits, for every option on the group of its stage."""
    groups = groups_of_stages(context, degree_class.pp, degree_class.dp * degree_class.tp * degree_class.cp)
    assert groups is not None
    on = np.array(groups)[options.number]
    time_s, fits = np.empty(len(options)), np.empty(len(options), dtype=bool)
    for number, group_context in enumerate(context.on_groups):
        here = on == number
        if here.any():
            time_s[here], fits[here] = option_costs(group_context, degree_class, options.take(here))
    return time_s, fits
