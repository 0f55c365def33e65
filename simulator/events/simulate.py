"""The entry point: one step of one strategy, event by event."""

from forerun.simulator.events.compile import compile_step
from forerun.simulator.events.costs import StepCosts
from forerun.simulator.events.disturb import Disturbance, disturb, replicas_needed
from forerun.simulator.events.engine import execute
from forerun.simulator.events.result import EventResult, result_of
from forerun.simulator.events.staged_costs import costs_of
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy


def simulate(context: Context, strategy: Strategy, disturbance: Disturbance | None = None) -> EventResult:
    """Simulate one optimizer step of a strategy, which must be legal.

    One pipeline is simulated for all replicas, since all are equal; with a ``disturbance`` all ``dp * cp`` of them.

    Raises:
        RequestError: a cost rule knows no such operator, link or precision, the schedule has no order for the shape, or
            a disturbed device does not exist, or a disturbance meets a strategy whose halves differ in tp.
    """
    replicas = replicas_needed(disturbance, strategy.dp * strategy.cp)
    if replicas > 1 and strategy.second_tp is not None:
        raise RequestError(
            f"replicas of {strategy} cross where tp changes, so that no pipeline is disturbed alone; drop the jitter"
        )
    return simulate_costs(costs_of(context, strategy), replicas=replicas, disturbance=disturbance)


def simulate_costs(costs: StepCosts, *, replicas: int = 1, disturbance: Disturbance | None = None) -> EventResult:
    """Simulate a step whose costs are given, on ``replicas`` pipelines side by side.

    Raises:
        RequestError: the schedule has no order for the shape, or a disturbed device does not exist.
    """
    graph = compile_step(costs, replicas=replicas)
    if disturbance is not None:
        disturb(graph, disturbance)
    return result_of(costs, graph, execute(graph))
