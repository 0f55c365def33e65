"""Compilation of operators, their cuts and their communication into the task graph of one step.

One device represents a pipeline rank, since the parts of every operator are equal. The compute stream of a device runs
operators in the order of the schedule's program; the feature stream carries activations, and the gradient stream
carries weights and gradients, in buckets that start after their last gradient. A recomputed run of operators is cloned
where the backward pass reaches it."""

from collections.abc import Mapping
from dataclasses import dataclass

from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.events.engine.kinds import KINDS
from forerun.simulator.events.step.device_tasks import add_streams
from forerun.simulator.opgraph.events.device_tasks import GraphDeviceWriter, SharedTasks
from forerun.simulator.opgraph.events.plan import GraphPlan, Move


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStep:
    """The graph of one step, and the transfer of each communication task."""

    graph: TaskGraph
    moves: Mapping[int, Move]


def compile_graph(plan: GraphPlan) -> CompiledStep:
    """Return the graph of one step."""
    graph = TaskGraph(KINDS)
    programs, overlap = plan.programs(), plan.context.cluster.overlap
    for device in range(plan.place_count):
        add_streams(graph, device, overlap.computation, overlap.communication)
    step = SharedTasks(plan, graph)
    for device, program in enumerate(programs):
        GraphDeviceWriter(step, device, list(program)).run()
    for task, key in step.waiting:
        graph.need(task, step.done[key])
    return CompiledStep(graph=graph, moves=step.moves)
