"""Lower bound of a 1F1B step from its costs, for any order of its tasks.

Every rank runs all its passes in sequence on one stream, with the replica traffic that the software never hides. A rank
starts after the first microbatch has passed the preceding ranks, and its last gradients pass these ranks again. All
ranks synchronise before the optimizer.
"""

from forerun.simulator.assignment.costs import StageCost, StepCosts

ROUNDING = 1e-9
"""Relative difference between sums of the same seconds in another order."""


def least_step_s(costs: StepCosts) -> float:
    """Return a lower bound of the simulated step in seconds.

    ``costs`` are those of a pipeline with one virtual stage per rank and equal numbers of backward and forward passes.
    """
    count = costs.shape.microbatches
    ready_s, busy_until_s = 0.0, []
    for rank, (chunk, stage) in enumerate(zip(costs.chunks, costs.stages, strict=True)):
        ready_s = max(ready_s, costs.host_step_s + _before_s(costs, stage))
        each_s = chunk.forward_s + chunk.backward_s + costs.host_microbatch_s + _each_s(costs, stage)
        busy_until_s.append(ready_s + count * each_s)
        ready_s += chunk.forward_s + (costs.p2p_from(rank, back=False) if rank + 1 < len(costs.chunks) else 0.0)
    done_s = end_s = 0.0
    for rank in reversed(range(len(costs.chunks))):
        if rank + 1 < len(costs.chunks):
            done_s += costs.p2p_from(rank + 1, back=True) + costs.chunks[rank].backward_s
        done_s = max(done_s, busy_until_s[rank])
        end_s = max(end_s, done_s + _behind_s(costs, costs.stages[rank]))
    return (end_s + max(stage.optimizer_s for stage in costs.stages)) * (1 - ROUNDING)


def _traffic(costs: StepCosts, stage: StageCost) -> list[tuple[int, StageCost]]:
    """Return the traffic of a rank by the ZeRO stage that determines its time."""
    return [(costs.zero if cost.zero is None else cost.zero, cost) for cost in (stage, *stage.also)]


def _before_s(costs: StepCosts, stage: StageCost) -> float:
    """Return the seconds of gathers before the first pass of a rank."""
    return (1 - costs.overlap_parameters) * sum(cost.gather_s for zero, cost in _traffic(costs, stage) if zero < 3)


def _each_s(costs: StepCosts, stage: StageCost) -> float:
    """Return the seconds of exposed gathers of every microbatch."""
    return (1 - costs.overlap_parameters) * sum(cost.gather_s for zero, cost in _traffic(costs, stage) if zero >= 3)


def _behind_s(costs: StepCosts, stage: StageCost) -> float:
    """Return the seconds of exposed gradient reduction after the last pass of a rank."""
    traffic = _traffic(costs, stage)
    reduced_s = sum(cost.reduce_s for zero, cost in traffic if zero < costs.reduced_each_from)
    return (1 - costs.overlap_gradients) * reduced_s
