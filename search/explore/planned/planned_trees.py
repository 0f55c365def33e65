"""Plans of unequal stages: their trees for ``simulate --tree``, and those faster than the rows of a search."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from forerun.search.board.found import FoundTrees
from forerun.search.board.requested import TreeRow
from forerun.search.board.rows import NO_LAUNCH_MARK, Row
from forerun.search.explore.planned.cuts import cuts_of, devices_of
from forerun.search.explore.planned.dynamic_program import best_paths
from forerun.search.explore.planned.options import Known, Pipeline, PlannedStage, stage_plans, transfers_of
from forerun.search.explore.trees.descents import LEAST, check_objective
from forerun.search.explore.trees.named_trees import row_of_tree
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.scorer import OnProgress
from forerun.search.request.setting import Setting
from forerun.simulator.core.stage_options import STAGE_AXES, StageOptions, stage_costs
from forerun.simulator.events.trees import simulate_tree
from forerun.spaces.divisors import divisors
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import SPELLING, Context, Recompute, Schedule, StrategySpace
from forerun.spaces.trees import Node, TreeError, flat_of, legal_tree, model_layers, resolve_tree, tree_yaml
from forerun.spaces.trees.values import Computation, Memory, Timing
from forerun.spaces.units import format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``stages`` from the first layers on; ``seconds``: step time by the planner's closed form."""

    microbatches: int
    stages: tuple[PlannedStage, ...]
    seconds: float

    @property
    def words(self) -> tuple[str, ...]:
        """Description of every stage, like ``stage 0: 4 GPUs tp2 dp2, 10 layers, 3 of them recomputed``."""
        return tuple(
            f"stage {number}: {devices_of(one.cut)} GPUs {_degrees(one)}, {one.layers} layers{_choices(one)}"
            for number, one in enumerate(self.stages)
        )

    @property
    def name(self) -> str:
        """The plan on one line: devices and degrees of every stage."""
        stages = " | ".join(f"{_degrees(one)} x{one.layers}" for one in self.stages)
        return f"{stages}, {self.microbatches} microbatches"


def plan_tree(context: Context, plan: Plan) -> Node:
    """Return the tree of a plan: one node per stage, with child nodes for first layers that differ."""
    names, layer, device, stages = model_layers(context.model), 0, 0, []
    for number, one in enumerate(plan.stages):
        layer_range = range(layer, layer + one.layers)
        layer, devices = layer + one.layers, range(device, device + devices_of(one.cut))
        device += len(devices)
        layers = [names[0]] * (number == 0) + [_range(layer_range)] + [names[-1]] * (number == len(plan.stages) - 1)
        place = ("children", number)
        stages.append(
            Node(
                name=f"stage {number}",
                layers=tuple(layers),
                devices=tuple(devices),
                compute=Computation(tp=one.cut.tp, cp=one.cut.cp, ep=one.cut.ep, sp=one.cut.sp),
                memory=_memory(one, one.hosted == one.layers),
                schedule=Timing(recompute=one.recompute if one.recomputed is None else Recompute.NONE),
                children=tuple(_runs(one, layer_range, place)),
                place=place,
            )
        )
    return Node(schedule=Timing(order=Schedule.ONE_F_ONE_B, microbatches=plan.microbatches), children=tuple(stages))


def _runs(one: PlannedStage, layer_range: range, place: tuple[str | int, ...]) -> Iterator[Node]:
    """Yield nodes for runs of layers whose settings differ from their stage's."""
    recomputed, hosted = one.recomputed or 0, one.hosted if one.hosted < one.layers else 0
    chosen = [(number < recomputed, number < hosted) for number in range(one.layers)]
    done = 0
    for differs, run in groupby(chosen):
        count = len(list(run))
        layers, done = layer_range[done : done + count], done + count
        if any(differs):
            yield Node(
                layers=(_range(layers),),
                memory=Memory(host=frozenset({"optimizer"})) if differs[1] else Memory(),
                schedule=Timing(recompute=one.recompute) if differs[0] else Timing(),
                place=(*place, "children", 0 if layers[0] == layer_range[0] else 1),
            )


def _memory(one: PlannedStage, hosted: bool) -> Memory:
    zero = Memory.zero(one.cut.zero)
    return Memory(
        optimizer=zero.optimizer,
        gradients=zero.gradients,
        parameters=zero.parameters,
        host=frozenset({"optimizer"}) if hosted else None,
    )


def _range(layers: range) -> str:
    return f"{layers[0]}-{layers[-1]}" if len(layers) > 1 else f"{layers[0]}"


def _degrees(one: PlannedStage) -> str:
    cut = one.cut
    degrees = [f"tp{cut.tp} dp{cut.dp}"]
    degrees += [f"cp{cut.cp}"] if cut.cp > 1 else []
    degrees += [f"ep{cut.ep}"] if cut.ep > 1 else []
    degrees += [f"mbs{cut.mbs}"]
    degrees += [f"zero{cut.zero}"] if cut.zero else []
    return " ".join(degrees + ["sp"] * cut.sp)


def _choices(one: PlannedStage) -> str:
    choices = []
    if one.recompute != Recompute.NONE:
        what = "" if one.recomputed is None else f"{one.recomputed} of them "
        choices.append(f"{what}recompute {SPELLING['recompute'][int(one.recompute)]}")
    if one.hosted:
        what = "" if one.hosted == one.layers else f" of {one.hosted} of them"
        choices.append(f"optimizer states{what} on the host")
    return "".join(f", {word}" for word in choices)


DEEPEST = 16
"""Most stages of a planned pipeline: deeper ones have many microbatches and similar stages."""
SLACK = 1.05
"""Factor over the best plan up to which plans are kept: closed forms differ from the event level by a few per cent."""
ALIKE = 2
"""Number of kept plans per pipeline: they differ little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divided:
    """Pipelines of all depths with one number of microbatches, and a lower bound of their plans."""

    pipelines: tuple[Pipeline, ...]
    least_s: float


def plans_of(
    space: StrategySpace, gpus: int, kept: int, on_progress: OnProgress | None = None, *, depths: Sequence[int] = ()
) -> tuple[list[Plan], int]:
    """Return the ``kept`` best plans on ``gpus`` devices, and the number of planned pipelines.

    ``depths``: numbers of stages, () for all up to ``DEEPEST``.
    """
    best_plans: list[Plan] = []
    known: Known = {}
    order = sorted(_divided(space, gpus, depths), key=lambda one: one.least_s)
    total, done = sum(len(one.pipelines) for one in order), 0
    for divided in order:
        if best_plans and divided.least_s > SLACK * best_plans[0].seconds:
            break
        transfers_s = [transfers_of(pipeline, known) for pipeline in divided.pipelines]
        for number, plans in enumerate(stage_plans(divided.pipelines, transfers_s)):
            if on_progress is not None:
                best = f"best {format_seconds(best_plans[0].seconds)}" if best_plans else ""
                on_progress("planning stages", done, total, best)
            done += 1
            within_s = SLACK * best_plans[0].seconds if best_plans else np.inf
            for path in best_paths(plans, transfers_s[number], within_s)[:ALIKE]:
                stages = tuple(plans[option] for option in path.options)
                best_plans.append(Plan(microbatches=plans.pipeline.microbatches, stages=stages, seconds=path.seconds))
            best_plans = sorted(best_plans, key=lambda plan: plan.seconds)[:kept]
            best_plans = [plan for plan in best_plans if plan.seconds <= SLACK * best_plans[0].seconds]
    return best_plans, done


def _divided(space: StrategySpace, gpus: int, depths: Sequence[int]) -> Iterator[Divided]:
    """Yield the possible pipelines by their microbatches."""
    context = space.context
    deepest = min(gpus, context.model.layer_count, DEEPEST) if context.framework.legality.pipeline_parallel else 1
    for microbatches in divisors(context.workload.global_batch):
        divisions = []
        for pp in depths or range(1, deepest + 1):
            cuts = tuple(cuts_of(space, gpus, pp, microbatches)) if pp <= microbatches else ()
            if cuts:
                divisions.append(Pipeline(space=space, cuts=cuts, gpus=gpus, pp=pp, microbatches=microbatches))
        if divisions:
            yield Divided(pipelines=tuple(divisions), least_s=_least_s(divisions))


def _least_s(pipelines: Sequence[Pipeline]) -> float:
    """Return a lower bound of all plans, in s.

    The bound runs all layers at the rate of the most efficient cut per device, and one microbatch through stages of the
    fastest cut.
    """
    cuts = sorted({replace(cut, pp=1) for pipeline in pipelines for cut in pipeline.cuts}, key=str)
    first = pipelines[0]
    degrees = {axis: np.array([float(getattr(cut, axis)) for cut in cuts]) for axis in STAGE_AXES}
    ends = np.zeros(len(cuts), dtype=np.int64)
    options = StageOptions(
        number=ends, start=ends, end=ends + first.layers, kind=ends + int(Recompute.NONE), some=ends - 1
    )
    time_s = stage_costs(first.context, options, degrees).time_s
    pace_s = float((time_s * np.array(list(map(devices_of, cuts)))).min()) / first.gpus
    return (first.microbatches - 1) * pace_s + float(time_s.min())


KEPT = 12
"""Number of simulated plans, best by closed form, which differs from the event level by a few per cent."""
SHOWN = 3
"""Most plans shown."""


def search_plans(setting: Setting, rows: Sequence[Row], on_progress: OnProgress | None = None) -> FoundTrees | None:
    """Return the best plans that are faster than the first of some simulated rows; None without rows.

    Raises
    ------
    RequestError
        Plans cannot be ranked by the objective.
    EndedEarly
        Interrupted, with the plans so far.
    """
    check_objective(setting.objective)
    if not rows:
        return None
    gpus = rows[0].gpus
    space = setting.space()
    depths = space.choices["pp"] if "pp" in setting.request.overrides else ()
    best = min((row for row in rows if row.gpus == gpus and row.fits), key=lambda row: row.step_time_s)
    better, done, planned = list[TreeRow](), 0, "unlike stages: "
    try:
        plans, pipelines = plans_of(space, gpus, KEPT, on_progress, depths=depths)
        planned += f"{pipelines:,} pipelines planned exactly on {gpus} GPUs, "
        for done, plan in enumerate(plans):
            if on_progress is not None:
                on_progress("simulating plans", done, len(plans), "")
            row = _row(setting, plan, str(best.strategy), best.step_time_s)
            if row is not None and (row.gain or 0.0) >= LEAST:
                better.append(row)
        return _found(better, len(plans), planned)
    except KeyboardInterrupt as stop:
        raise EndedEarly(_found(better, done, f"{planned}interrupted, "), stop) from None


def _found(rows: Sequence[TreeRow], simulated: int, planned: str) -> FoundTrees:
    """Return the best simulated plans."""
    best = sorted(rows, key=lambda row: row.row.step_time_s)[:SHOWN]
    remark = f"{planned}{simulated} plans simulated; " + (
        f"the best is {best[0].gain:.1%} faster than #1" if best else "none is faster than #1"
    )
    return FoundTrees(rows=tuple(best), starts=0, judged=simulated, simulated=simulated, remarks=(remark,))


def _row(setting: Setting, plan: Plan, start: str, start_s: float) -> TreeRow | None:
    """Return the simulated row of a plan, compared with the flat ``start``; None if it does not fit, breaks a law, or
    is flat.
    """
    root = plan_tree(setting.context, plan)
    try:
        strategies = legal_tree(setting.context, resolve_tree(root, model_layers(setting.context.model)))
        if flat_of(setting.context, strategies) is not None:
            return None
        scores = simulate_tree(setting.context, strategies).scores
    except (TreeError, RequestError):
        return None
    if not scores.fits[0]:
        return None
    row = row_of_tree(setting, strategies, plan.name, scores)
    mark = f"{NO_LAUNCH_MARK}: stages of unlike degrees"
    return TreeRow(
        row=dataclasses.replace(row, marks=(*row.marks, mark)),
        start=start,
        start_s=start_s,
        changes=plan.words,
        yaml="\n".join((f"# {setting.context.model.name}", *(f"# {line}" for line in plan.words), tree_yaml(root))),
    )
