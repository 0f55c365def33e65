"""One step of a strategy tree, event by event."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.events.step.contention import Contention, contention_of
from forerun.simulator.events.step.costs import StepCosts
from forerun.simulator.events.step.result import EventResult
from forerun.simulator.events.step.simulate import simulate_costs
from forerun.simulator.events.step.steady import StepFigures, step_figures
from forerun.simulator.events.step.traffic import line_rate_cluster, step_traffic
from forerun.simulator.events.trees.costs import stage_memory_of, tree_costs
from forerun.simulator.events.trees.host import host_rate, with_host_replicas
from forerun.simulator.events.trees.parts import all_replicas, blocks_of, homes_of, with_modules
from forerun.simulator.memory.peak import TotalMemory
from forerun.simulator.score_table import TIME_PARTS, ScoreTable
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context
from forerun.spaces.trees import TreeStrategies

_SHARING = ("dp", "tp", "cp", "ep", "etp", "sp", "mbs", "zero", "shard")
"""What must be alike for all layers where traffic finds its way over the cluster's links."""


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
    context = with_modules(context, strategies)
    costs = tree_costs(context, strategies)
    shared = tree_contention(context, strategies, costs) if contention and strategies.tree.device_count > 1 else None
    count = 1 if shared is None else shared.simulated
    events, figures = simulate_costs(costs, replicas=count, contention=shared), step_figures(costs, shared)
    return TreeResult(events=events, scores=_scores(context, strategies, figures))


def tree_scores(context: Context, strategies: TreeStrategies, costs: StepCosts) -> ScoreTable:
    """Return the row of a legal tree alone, without its timeline: what a search compares. ``costs``: ``tree_costs``."""
    return _scores(with_modules(context, strategies), strategies, step_figures(costs))


def rough_step_s(strategies: TreeStrategies, costs: StepCosts) -> float:
    """Return what a step takes about, before any event: the work of the busiest device-stage, the fill of its pipeline
    and the traffic that nothing hides. It orders trees on the same devices, and is off by about the same for all."""
    passes_s = [chunk.forward_s + chunk.backward_s for chunk in costs.chunks]
    homes = homes_of(strategies.first)
    busy_s = [sum(passes_s[chunk] for chunk in chunks) for chunks in homes]
    bare_s = [
        stage.optimizer_s
        + (1 - costs.overlap_gradients) * stage.reduce_s
        + (1 - costs.overlap_parameters) * stage.gather_s
        for stage in costs.stages
    ]
    step_s = max(costs.shape.microbatches * busy + bare for busy, bare in zip(busy_s, bare_s, strict=True))
    fill_s = (len(homes) - 1) * sum(busy_s) / len(homes) / costs.shape.vpp
    return step_s + fill_s + costs.host_step_s


def stage_peaks(context: Context, strategies: TreeStrategies) -> NDArray[np.float64]:
    """Return the peak memory in bytes of every device-stage of a legal tree, by the core's closed forms."""
    context = with_modules(context, strategies)
    return np.asarray(_core_memory(context, strategies).peak_bytes)


def _core_memory(context: Context, strategies: TreeStrategies) -> TotalMemory:
    blocks, homes = blocks_of(context, strategies), homes_of(strategies.first)
    rate = host_rate(context, strategies)
    replicas = with_host_replicas(context, strategies, homes, all_replicas(context, blocks, homes), rate)
    return stage_memory_of(context, blocks, homes, replicas, strategies.tree.microbatches)


def _scores(context: Context, strategies: TreeStrategies, figures: StepFigures) -> ScoreTable:
    core = _core_memory(context, strategies)
    stage = int(np.argmax(core.allocated_bytes))
    more = figures.peak_bytes - float(core.allocated_bytes[stage])
    lost = context.framework.fragmentation * more
    memory = {part: float(values[stage]) for part, values in core.parts.items()}
    memory["activations"] += more
    memory["reserve"] += lost
    peak = float(core.peak_bytes[stage]) + more + lost
    return ScoreTable(
        step_time_s=np.array([figures.step_time_s]),
        time_s={part: np.array([figures.time_s[place]]) for place, part in enumerate(TIME_PARTS)},
        peak_memory_bytes=np.array([peak]),
        allocated_bytes=np.array([figures.peak_bytes]),
        memory_bytes={part: np.array([value]) for part, value in memory.items()},
        peak_stage=np.array([figures.fullest]),
        fits=np.array([peak <= context.memory_limit_bytes]),
    )


def tree_contention(context: Context, strategies: TreeStrategies, costs: StepCosts) -> Contention:
    """Return what the traffic of a step shares.

    Raises:
        RequestError: layers share their devices differently, or the cluster has no graph or groups that differ.
    """
    if context.cluster.groups:
        raise RequestError(f"the groups of {context.cluster.name} have no common graph of links; drop the contention")
    every = [one for row in strategies.of_leaf for one in row]
    for name in _SHARING:
        values = sorted({int(getattr(one, name)) for one in every})
        if len(values) > 1:
            found = " and ".join(map(str, values))
            raise RequestError(
                f"with contention all layers share their devices alike, but {name} is {found}; drop the contention"
            )
    fast = replace(context, cluster=line_rate_cluster(context, strategies.first))
    blocks, homes = blocks_of(context, strategies), homes_of(strategies.first)
    still_s: list[float] = all_replicas(fast, blocks, homes).reduce_s.tolist()
    reduce_s = [stage.reduce_s for stage in costs.stages]
    return contention_of(step_traffic(context, strategies.first, reduce_s, still_s))
