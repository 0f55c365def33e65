"""The entry point: one step of one strategy, event by event."""

from forerun.simulator.events.compile import compile_step
from forerun.simulator.events.costs import StepCosts, step_costs
from forerun.simulator.events.engine import execute
from forerun.simulator.events.result import EventResult, result_of
from forerun.spaces.strategies import Context, Strategy


def simulate(context: Context, strategy: Strategy) -> EventResult:
    """Simulate one optimizer step of a strategy, which must be legal.

    One pipeline replica is simulated for all, since all are equal.

    Raises:
        RequestError: a cost rule knows no such operator, link or precision, or the schedule has no order for the shape.
    """
    return simulate_costs(step_costs(context, strategy))


def simulate_costs(costs: StepCosts) -> EventResult:
    """Simulate a step whose costs are given.

    Raises:
        RequestError: the schedule has no order for the shape.
    """
    graph = compile_step(costs)
    return result_of(costs, graph, execute(graph))
