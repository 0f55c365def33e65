"""A plan: contents of every pipeline stage, and its strategy tree."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from forerun.search.explore.planned.cuts import devices_of
from forerun.search.explore.planned.options import PlannedStage
from forerun.spaces.strategies import SPELLING, Context, Recompute, Schedule
from forerun.spaces.trees import Node, model_layers
from forerun.spaces.trees.values import Computation, Memory, Timing


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
