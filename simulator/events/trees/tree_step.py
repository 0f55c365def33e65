"""One step of a strategy tree, event by event."""

from dataclasses import dataclass

from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.assignment.of_tree import assign_tree
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.events.step.rescore import event_row
from forerun.simulator.events.step.result import EventResult
from forerun.simulator.events.step.steady import step_figures
from forerun.simulator.events.step.strategy_step import simulate_costs, step_contention
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.strategies import Context
from forerun.spaces.trees import TreeStrategies


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeResult:
    """A simulated tree: the events, and the row that reports are made of (``ScoreTable`` of one candidate)."""

    events: EventResult
    scores: ScoreTable


def simulate_tree(context: Context, strategies: TreeStrategies, *, contention: bool = False) -> TreeResult:
    """Simulate one optimizer step of a legal tree.

    A tree that is a flat strategy gives what ``simulate`` and ``event_scores`` give for that. Memory is split as the
    core does it, what the events keep beyond or below that counts as activations. ``contention`` as for ``simulate``.

    Raises:
        RequestError: a cost rule knows no such operator, link or precision, the schedule has no order for the shape, or
            contention is asked for where layers share their devices differently or the cluster has no graph of links.
    """
    assignment = assign_tree(context, strategies)
    costs = step_costs(assignment)
    shared = step_contention(assignment, costs) if contention and strategies.tree.device_count > 1 else None
    events = simulate_costs(costs, replicas=1 if shared is None else shared.simulated, contention=shared)
    return TreeResult(events=events, scores=event_row(assignment, step_figures(costs, shared)))


def rough_step_s(costs: StepCosts) -> float:
    """Return what a step takes about, before any event: the work of the busiest rank, the fill of its pipeline and the
    traffic that nothing hides. It orders trees on the same devices, and is off by about the same for all."""
    passes_s = [chunk.forward_s + chunk.backward_s for chunk in costs.chunks]
    busy_s = [sum(passes_s[chunk] for chunk in stage.share) for stage in costs.stages]
    bare_s = [
        stage.optimizer_s
        + (1 - costs.overlap_gradients) * stage.reduce_s
        + (1 - costs.overlap_parameters) * stage.gather_s
        for stage in costs.stages
    ]
    step_s = max(costs.shape.microbatches * busy + bare for busy, bare in zip(busy_s, bare_s, strict=True))
    fill_s = (len(costs.stages) - 1) * sum(busy_s) / len(costs.stages) / costs.shape.vpp
    return step_s + fill_s + costs.host_step_s
