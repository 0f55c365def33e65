"""Event-level simulation of one step of an operator graph under a strategy tree."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter

from forerun.simulator.assignment.costs import ChunkCost, StageCost, StepCosts
from forerun.simulator.events.engine.engine import execute
from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.events.engine.kinds import KINDS
from forerun.simulator.events.step.contention import Key
from forerun.simulator.events.step.device_tasks import add_streams
from forerun.simulator.events.step.result import EventResult, result_of_run
from forerun.simulator.opgraph.events.device_tasks import GraphDeviceWriter, SharedTasks
from forerun.simulator.opgraph.events.plan import GraphPlan, Move
from forerun.simulator.opgraph.events.sharing import share_links, shares_links
from forerun.spaces.schedules import PipelineShape


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


def simulate_plan(plan: GraphPlan, *, contention: bool = False) -> EventResult:
    """Simulate one step, whose transfers share links by max-min fairness.

    On a cluster without a graph of links each transfer has the time of the cost rules, and ``contention`` is refused.

    Raises:
        RequestError: the schedule has no order for the shape, tasks wait for each other in a cycle, or contention is
            requested on a cluster without a single graph of links.
    """
    begin = perf_counter()
    step = compile_graph(plan)
    compiled = perf_counter()
    shared = None
    sent: Mapping[Key, float] = {}
    cluster, devices = plan.context.cluster, plan.tree.device_count
    if shares_links(cluster, devices, contention):
        shared, sent = share_links(cluster, devices, step.graph, plan.wired(step.moves))
    result = result_of_run(_shape(plan), step.graph, execute(step.graph))
    took_s = {"compile": compiled - begin, "run": perf_counter() - compiled}
    return replace(result, contention=shared, sent_bytes=sent, took_s=took_s)


def _shape(plan: GraphPlan) -> StepCosts:
    """Return the shape of a step for reports; times are in the tasks."""
    stages, devices = len(plan.tree.stages), plan.place_count
    empty = ChunkCost(forward_s=0.0, backward_s=0.0, weight_s=0.0, parts={})
    return StepCosts(
        schedule=int(plan.tree.order),
        shape=PipelineShape(pp=devices, vpp=max(stages // devices, 1), microbatches=plan.tree.microbatches),
        chunks=(empty,) * stages,
        stages=tuple(StageCost(share={}) for _ in range(devices)),
    )
