"""How the layers of a model are dealt to stages on groups of nodes that differ."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.search.explore.samplers.degree_classes import DegreeClass, degree_classes
from forerun.search.explore.samplers.planner import PlannedStrategy, Planner
from forerun.simulator.core.stage_options import StageOptions, least_pace_s, option_costs
from forerun.simulator.score_table import Floats
from forerun.spaces.clusters import stage_groups
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy, StrategyTable
from forerun.spaces.strategies.stage_laws import broken_laws
from forerun.spaces.strategies.staged_space import StagedSpace

PLANS = 2
"""Splits of the layers that are simulated per class of degrees: those with the best bounds on the slowest stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A plan of a ``degree_class``, whose ``least_s`` no plan's step undercuts."""

    degree_class: DegreeClass
    plan: PlannedStrategy


def group_plans(space: StagedSpace) -> Iterator[GroupPlan]:
    """Yield plans of all classes of degrees that the groups hold, those whose bound is lowest first."""
    planner = Planner(space, costs=_option_costs)
    contexts = space.context.on_groups
    for degree_class in degree_classes(space, least=_least_pace_s):
        if _groups_of_stages(space.context, degree_class.strategy) is None:
            continue
        if any(broken_laws(degree_class.strategy, context) for context in contexts):
            continue
        for plan in planner.plans(degree_class.strategy, PLANS):
            yield GroupPlan(degree_class=degree_class, plan=plan)


def _groups_of_stages(context: Context, strategy: Strategy) -> tuple[int, ...] | None:
    """Return the group of every stage; None where the groups do not hold them."""
    try:
        return stage_groups(context.cluster, strategy.pp, strategy.dp * strategy.tp * strategy.cp)
    except RequestError:
        return None


def _option_costs(context: Context, degree_class: Strategy, options: StageOptions) -> tuple[Floats, NDArray[np.bool_]]:
    """Return seconds of a microbatch and whether it fits for every option, each on the group of its stage."""
    groups = _groups_of_stages(context, degree_class)
    assert groups is not None
    on = np.array(groups)[options.number]
    time_s, fits = np.empty(len(options)), np.empty(len(options), dtype=bool)
    for number, own in enumerate(context.on_groups):
        here = on == number
        if here.any():
            time_s[here], fits[here] = option_costs(own, degree_class, options.take(here))
    return time_s, fits


def _least_pace_s(context: Context, table: StrategyTable) -> Floats:
    """Return the seconds of one microbatch on a stage if layers were dealt in proportion to the pace of every group.

    Groups on which equal parts would not fit may still take a smaller one: they count with the pace of the fastest.
    """
    paces_s = np.stack([least_pace_s(own, table) for own in context.on_groups])
    best_s = paces_s.min(axis=0)
    rates = 1.0 / np.where(np.isfinite(paces_s), paces_s, best_s)
    shares = np.array([group.devices for group in context.cluster.groups], dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        least_s = 1.0 / (shares / shares.sum() @ rates)
    return np.where(np.isfinite(best_s), least_s, np.inf)
