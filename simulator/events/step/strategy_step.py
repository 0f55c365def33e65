"""The entry point: one step, event by event."""

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
"""What must be alike for all layers where traffic finds its way over the cluster's links."""

MOST_PASSES, MOST_SHARED = 100_000, 20_000
"""Passes of all pipelines of a step whose timeline is kept: they take eight seconds and a quarter of a gigabyte; and
where their traffic shares links, which takes four times as long."""


def simulate(
    context: Context,
    strategy: Strategy,
    disturbance: Disturbance | None = None,
    *,
    contention: bool = False,
    orders: Programs = (),
) -> EventResult:
    """Simulate one optimizer step of a strategy, which must be legal.

    One pipeline is simulated for all replicas, since all are equal; with a ``disturbance`` all ``dp * cp`` of them.
    With ``contention`` all traffic between stages and replicas takes its way over the cluster's graph and shares links
    by max-min fairness; then one pipeline is simulated for each kind of replica that this makes. ``orders``: what every
    pipeline rank runs, in place of the schedule's own order (``schedules.read_orders``).

    Raises:
        RequestError: a cost rule knows no such operator, link or precision, the schedule has no order for the shape, a
            disturbed device does not exist, the cluster's groups do not hold the stages, a disturbance or contention
            meets a strategy whose halves differ in tp, or contention is asked for on a cluster without one graph.
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
    """Return what the traffic of a step shares; with ``every_replica`` also what equal replicas do not share.

    Raises:
        RequestError: the cluster has no graph or groups that differ, a device cannot be reached, or layers share their
            devices differently.
    """
    every = list(assignment.blocks())
    if len(assignment.contexts) > 1:
        names = " and ".join(context.cluster.name for context in assignment.contexts)
        raise RequestError(f"groups of nodes ({names}) have no common graph of links; drop the contention")
    for name in _SHARING:
        values = sorted({int(getattr(settings, name)) for settings in every})
        if len(values) > 1:
            found = " and ".join(map(str, values))
            raise RequestError(
                f"with contention all layers share their devices alike, but {name} is {found}; drop the contention"
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
    """Simulate a step whose costs are given, on ``replicas`` pipelines side by side.

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
    """Refuse a step of more passes than can be simulated in ten seconds; ``shared``: its traffic shares links.

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
    """Return how a step is spent, without its timeline: memory grows with the tasks that are live, not with all.

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
    """Run what a source writes.

    Raises:
        RequestError: tasks wait for each other in a circle.
    """
    tally = Tally(source.graph, timeline)
    if not run_live(source, tally):
        # Only the whole graph can name the circle, some of which has not been written.
        execute(compile_step(costs, replicas=replicas, contention=contention, disturbance=disturbance))
        raise RuntimeError("a step stopped early that runs to its end as one graph")
    return tally
