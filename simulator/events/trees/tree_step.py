"""Event-level simulation of one step of a strategy tree."""

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
    """A simulated tree: its events, and the ``ScoreTable`` row for reports."""

    events: EventResult
    scores: ScoreTable


def simulate_tree(context: Context, strategies: TreeStrategies, *, contention: bool = False) -> TreeResult:
    """Simulate one optimizer step of a legal tree.

    A tree that equals a flat strategy gives the results of ``simulate`` and ``event_scores``. Memory has the parts of
    the core; the difference to the events' live tensors counts as activations. ``contention``: see ``simulate``.

    Raises:
        RequestError: a cost rule does not know an operator, link or precision, the schedule has no order for the shape,
            or contention is requested where layers split their devices differently or the cluster has no graph of
            links.
    """
    assignment = assign_tree(context, strategies)
    costs = step_costs(assignment)
    shared = step_contention(assignment, costs) if contention and strategies.tree.device_count > 1 else None
    events = simulate_costs(costs, replicas=1 if shared is None else shared.simulated, contention=shared)
    return TreeResult(events=events, scores=event_row(assignment, step_figures(costs, shared)))


def rough_step_s(costs: StepCosts) -> float:
    """Return a rough step time without events: work of the busiest rank, fill of its pipeline and exposed traffic.

    The estimate orders trees on the same devices, since its error is similar for all trees.
    """
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
