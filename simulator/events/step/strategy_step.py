"""Entry point of the event-level simulation of one step."""

from dataclasses import replace

from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.step_costs import reduction_latency_s, step_costs
from forerun.simulator.assignment.value import Assignment
from forerun.simulator.events.engine.engine import execute
from forerun.simulator.events.engine.live_run import run_live
from forerun.simulator.events.engine.timeline import TimelineWriter
from forerun.simulator.events.step.compile import StepSource, compile_step
from forerun.simulator.events.step.contention import Contention, contention_of
from forerun.simulator.events.step.disturb import Disturbance, replicas_needed
from forerun.simulator.events.step.result import EventResult, result_of
from forerun.simulator.events.step.tally import StepUse, Tally
from forerun.simulator.events.step.traffic import step_traffic
from forerun.spaces.errors import RequestError
from forerun.spaces.schedules import Programs
from forerun.spaces.strategies import Context, Strategy

_SHARING = ("dp", "tp", "cp", "ep", "etp", "sp", "mbs", "zero", "shard")
"""Fields that must be equal for all layers where traffic is routed over the cluster's links."""

MOST_PASSES, MOST_SHARED = 100_000, 20_000
"""Limits of the passes of all pipelines of a step with a timeline, without and with shared links. The passes take eight
seconds and a quarter of a gigabyte; with shared links the time is four times as long."""


def simulate(
    context: Context,
    strategy: Strategy,
    disturbance: Disturbance | None = None,
    *,
    contention: bool = False,
    orders: Programs = (),
) -> EventResult:
    """Simulate one optimizer step of a legal strategy.

    One pipeline represents all replicas, since all are equal; with a ``disturbance`` all ``dp * cp`` replicas are
    simulated. With ``contention`` all traffic between stages and replicas is routed over the cluster's graph and shares
    links by max-min fairness; one pipeline is simulated for each kind of replica that results. ``orders``: program of
    every pipeline rank, in place of the schedule's own order (``schedules.read_orders``).

    Raises:
        RequestError: a cost rule does not know an operator, link or precision; the schedule has no order for the shape;
            a disturbed device does not exist; the cluster's groups cannot fit the stages; disturbance or contention is
            requested for a strategy whose halves differ in tp, or contention for a cluster without a single graph.
    """
    assignment = assign(context, strategy)
    costs = replace(step_costs(assignment), orders=orders)
    replicas = replicas_needed(disturbance, strategy.dp * strategy.cp)
    if replicas > 1 and strategy.second_tp is not None:
        raise RequestError(
            f"replicas of {strategy} cross where tp changes, so that no pipeline is disturbed alone; drop the jitter"
        )
    if not contention or strategy.devices == 1:
        return simulate_costs(costs, replicas=replicas, disturbance=disturbance)
    check_passes(costs, replicas, shared=True)
    shared = step_contention(assignment, costs, every_replica=replicas > 1)
    return simulate_costs(costs, replicas=shared.simulated, disturbance=disturbance, contention=shared)


def step_contention(assignment: Assignment, costs: StepCosts, *, every_replica: bool = False) -> Contention:
    """Return the links shared by a step's traffic; ``every_replica``: keep equal replicas distinct.

    Raises:
        RequestError: the cluster has no graph or has groups that differ, a device cannot be reached, or layers split
            their devices differently.
    """
    every = list(assignment.blocks())
    if len(assignment.contexts) > 1:
        names = " and ".join(context.cluster.name for context in assignment.contexts)
        raise RequestError(f"groups of nodes ({names}) have no common graph of links; drop the contention")
    for name in _SHARING:
        values = sorted({int(getattr(settings, name)) for settings in every})
        if len(values) > 1:
            text = " and ".join(map(str, values))
            raise RequestError(
                f"with contention all layers share their devices alike, but {name} is {text}; drop the contention"
            )
    reduce_s = [stage.reduce_s for stage in costs.stages]
    traffic = step_traffic(assignment.context, every[0], reduce_s, reduction_latency_s(assignment))
    return contention_of(traffic, every_replica=every_replica)


def simulate_costs(
    costs: StepCosts,
    *,
    replicas: int = 1,
    disturbance: Disturbance | None = None,
    contention: Contention | None = None,
) -> EventResult:
    """Simulate a step with given costs on ``replicas`` pipelines.

    Raises:
        RequestError: the schedule has no order for the shape, a disturbed device does not exist, or the step has more
            than ``MOST_PASSES``.
    """
    check_passes(costs, replicas, shared=contention is not None)
    writer = TimelineWriter()
    source = StepSource(costs, replicas=replicas, contention=contention, disturbance=disturbance, arrows=writer.arrows)
    result = result_of(costs, _tally(source, costs, replicas, contention, disturbance, writer))
    return replace(
        result, contention=contention, sent_bytes=source.sent_bytes, replicas=replicas, disturbance=disturbance
    )


def check_passes(costs: StepCosts, replicas: int, *, shared: bool) -> None:
    """Refuse a step with more passes than can be simulated in ten seconds; ``shared``: its traffic shares links.

    Raises:
        RequestError: the message names the bound.
    """
    passes = 2 * costs.shape.pp * costs.shape.vpp * costs.shape.microbatches * replicas
    most, less = (MOST_SHARED, "without --contention, ") if shared else (MOST_PASSES, "")
    of = f" ({replicas:,} pipelines)" if replicas > 1 else ""
    if passes > most:
        raise RequestError(
            f"event by event a step has at most {most:,} passes{' whose traffic shares links' if shared else ''}, but "
            f"this one has {passes:,}{of}; use {less}--fidelity analytic, a larger mbs or a "
            "smaller global batch"
        )


def step_use(costs: StepCosts, *, replicas: int = 1, contention: Contention | None = None) -> StepUse:
    """Return the use of a step without its timeline: memory grows with live tasks, not with all tasks.

    Raises:
        RequestError: as for ``simulate_costs``.
    """
    source = StepSource(costs, replicas=replicas, contention=contention)
    return _tally(source, costs, replicas, contention, None, None).use(costs)


def _tally(
    source: StepSource,
    costs: StepCosts,
    replicas: int,
    contention: Contention | None,
    disturbance: Disturbance | None,
    timeline: TimelineWriter | None,
) -> Tally:
    """Run the tasks of a source.

    Raises:
        RequestError: tasks wait for each other in a cycle.
    """
    tally = Tally(source.graph, timeline)
    if not run_live(source, tally):
        # Only the complete graph can name the cycle, part of which has not been written.
        execute(compile_step(costs, replicas=replicas, contention=contention, disturbance=disturbance))
        raise RuntimeError("a step stopped early that runs to its end as one graph")
    return tally
