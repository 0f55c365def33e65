"""The best plans of a request: every depth of the pipeline and number of microbatches, most promising first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.search.request.scorer import Told
from forerun.search.unequal.cuts import cuts_of, devices_of
from forerun.search.unequal.dynamic import best_paths
from forerun.search.unequal.options import Known, Pipeline, fillings_of, transfers_of
from forerun.search.unequal.plan import Plan
from forerun.simulator.core.stage_options import STAGE_AXES, StageOptions, stage_costs
from forerun.spaces.divisors import divisors
from forerun.spaces.strategies import Recompute, StrategySpace
from forerun.spaces.units import format_seconds

DEEPEST = 16
"""Stages of the deepest pipelines: from there on microbatches are many and stages alike."""
SLACK = 1.03
"""Pipelines whose bound exceeds the best plan by this factor are not planned: closed forms miss the event level by a
few per cent."""
ALIKE = 2
"""Plans of one pipeline that are kept: they differ little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """A pipeline, and the least that a step of it may take."""

    pipeline: Pipeline
    least_s: float


def plans_of(
    space: StrategySpace, gpus: int, kept: int, told: Told | None = None, *, depths: Sequence[int] = ()
) -> tuple[list[Plan], int]:
    """Return the best plans on ``gpus`` devices, best first and ``kept`` of them, and how many pipelines were planned;
    ``depths``: numbers of stages, () for all up to ``DEEPEST``."""
    found: list[Plan] = []
    known: Known = {}
    order = sorted(_pipelines(space, gpus, depths), key=lambda one: one.least_s)
    for done, bounded in enumerate(order):
        within_s = SLACK * found[kept - 1].seconds if len(found) >= kept else np.inf
        if bounded.least_s > within_s or (found and bounded.least_s > SLACK * found[0].seconds):
            return found, done
        if told is not None:
            told("planning stages", done, len(order), f"best {format_seconds(found[0].seconds)}" if found else "")
        transfers_s = transfers_of(bounded.pipeline, known)
        fillings = fillings_of(bounded.pipeline, transfers_s)
        for path in best_paths(fillings, transfers_s, within_s)[:ALIKE]:
            stages = tuple(fillings[option] for option in path.options)
            found.append(Plan(microbatches=bounded.pipeline.microbatches, stages=stages, seconds=path.seconds))
        found = sorted(found, key=lambda plan: plan.seconds)[:kept]
    return found, len(order)


def _pipelines(space: StrategySpace, gpus: int, depths: Sequence[int] = ()) -> Iterator[Bounded]:
    """Yield the pipelines that may be planned, with what no plan of each undercuts."""
    context = space.context
    deepest = min(gpus, context.model.layer_count, DEEPEST) if context.framework.legality.pipeline_parallel else 1
    open_depths = depths or range(1, deepest + 1)
    for microbatches in divisors(context.workload.global_batch):
        for pp in open_depths:
            if pp > microbatches:
                continue
            cuts = tuple(cuts_of(space, gpus, pp, microbatches))
            if cuts:
                pipeline = Pipeline(space=space, cuts=cuts, gpus=gpus, pp=pp, microbatches=microbatches)
                yield Bounded(pipeline=pipeline, least_s=_least_s(pipeline))


def _least_s(pipeline: Pipeline) -> float:
    """Return what no plan undercuts: all layers at the pace of the cut that does most with a device, and one
    microbatch through stages of the fastest cut."""
    cuts, layers = pipeline.cuts, pipeline.layers
    alone = {axis: np.array([float(getattr(cut, axis)) for cut in cuts]) for axis in STAGE_AXES}
    alone["pp"] = np.ones(len(cuts))
    ends = np.zeros(len(cuts), dtype=np.int64)
    whole = StageOptions(number=ends, start=ends, end=ends + layers, kind=ends + int(Recompute.NONE), some=ends - 1)
    time_s = stage_costs(pipeline.context, whole, alone).time_s
    sizes = np.array([devices_of(cut) for cut in cuts])
    pace_s = float((time_s * sizes).min()) / pipeline.gpus
    return (pipeline.microbatches - 1) * pace_s + float(time_s.min())
