"""Division of the layers of a model among stages on groups of nodes that differ."""

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from forerun.search.explore.groups.group_bounds import groups_of_stages, least_plan_s
from forerun.search.explore.samplers.degree_classes import degree_classes
from forerun.search.explore.samplers.planner import Planner
from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.assignment.least import least_step_s
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.assignment.value import Assignment
from forerun.simulator.core.stage_options import StageOptions, option_costs
from forerun.simulator.score_table import Floats
from forerun.spaces.strategies import Context, Strategy
from forerun.spaces.strategies.stage_laws import broken_laws
from forerun.spaces.strategies.staged_space import StagedSpace

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
        if any(broken_laws(dealt, own) for own in space.context.on_groups):
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
    for number, own in enumerate(context.on_groups):
        here = on == number
        if here.any():
            time_s[here], fits[here] = option_costs(own, degree_class, options.take(here))
    return time_s, fits
