"""One step of an operator graph under a strategy tree, event by event."""

from forerun.simulator.assignment.costs import ChunkCost, StageCost, StepCosts
from forerun.simulator.events.engine.engine import execute
from forerun.simulator.events.step.result import EventResult, result_of_run
from forerun.simulator.opgraph.events.compile import compile_graph
from forerun.simulator.opgraph.events.plan import GraphPlan
from forerun.simulator.schedules import PipelineShape


def simulate_plan(plan: GraphPlan) -> EventResult:
    """Simulate one step.

    Raises:
        RequestError: the schedule has no order for the shape, or tasks wait for each other in a circle.
    """
    graph = compile_graph(plan)
    return result_of_run(_shape(plan), graph, execute(graph))


def _shape(plan: GraphPlan) -> StepCosts:
    """Return what reports ask of the costs of a step; the tasks themselves have the times."""
    stages, devices = len(plan.tree.stages), len(plan.tree.groups)
    empty = ChunkCost(forward_s=0.0, backward_s=0.0, weight_s=0.0, parts={})
    return StepCosts(
        schedule=int(plan.tree.order),
        shape=PipelineShape(pp=devices, vpp=stages // devices, microbatches=plan.tree.microbatches),
        chunks=(empty,) * stages,
        stages=tuple(StageCost(share={}) for _ in range(devices)),
    )
