"""Neighbours of a strategy in one axis, with other axes adapted if the change makes them illegal.

Settings per stage are kept if possible, and a step of a single stage is a change too.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from forerun.search.explore.samplers.moves import Moves
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks.hardware import device_kinds
from forerun.spaces.strategies import (
    ALL_REPLICAS,
    AXES,
    CUSTOM_SPLIT,
    NAMED,
    Context,
    Recompute,
    Schedule,
    StageChoices,
    Strategy,
    StrategySpace,
    default_choices,
    strategy_of,
)
from forerun.spaces.strategies.axes import CHOSEN, SOFTWARE
from forerun.spaces.strategies.software import can_turn_on, does_something, settled
from forerun.spaces.strategies.stage_laws import broken_laws
from forerun.spaces.strategies.staged_space import StagedSpace
from forerun.spaces.strategies.table import axis_values

STEPS = 4
"""Moves of a layer tried for each stage: from and to the ends and neighbouring stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisStep:
    """One step along ``axis``: the resulting ``strategy``, and its difference (``tp4 -> tp8, dp16 -> dp8``)."""

    axis: str
    strategy: Strategy
    words: str


def neighbours(context: Context, strategy: Strategy) -> tuple[AxisStep, ...]:
    """Return the legal strategies on the same devices that differ in one axis.

    A number changes to the next legal one, a named choice to any other. Other axes change only if needed: dp with the
    device count, the schedule with vpp, the split with the stages; meaningless settings (sp without tp, zero without
    replicas) are dropped. For a strategy whose stages differ, neighbours also move one layer to another stage, or
    change recompute or the host share of one stage, or tp of the second half. Each strategy occurs once.
    """
    values = axis_values(strategy)
    if strategy.stage_recompute is not None:
        values["recompute"] = -1  # no choice for all stages equals the present one
    choices = default_choices(context, [strategy.devices])
    choices["switches"] = tuple(sorted({*choices["switches"], values["switches"], 0}))
    steps: dict[str, AxisStep] = {}
    for axis in AXES[1:]:
        for values_one_way in _ways(axis, values[axis], choices[axis]):
            for value in values_one_way:
                changed = _repair(axis, {**values, axis: value}, context, choices, strategy)
                if changed is not None and changed != strategy:
                    change = difference(strategy, changed)
                    steps.setdefault(str(changed), AxisStep(axis=axis, strategy=changed, words=change))
                    break
    for changed in _switched(context, strategy):
        steps.setdefault(str(changed), AxisStep(axis="software", strategy=changed, words=difference(strategy, changed)))
    for axis, changed in _stage_steps(context, strategy, choices):
        steps.setdefault(str(changed), AxisStep(axis=axis, strategy=changed, words=difference(strategy, changed)))
    return tuple(steps.values())


def _switched(context: Context, strategy: Strategy) -> Iterator[Strategy]:
    """Yield legal strategies with one more or one less switch of the kind that searches turn on."""
    free = can_turn_on(context.framework, on=device_kinds(context.cluster))
    pays = settled(replace(context, free_software=free), strategy).software
    for flag in SOFTWARE.values():
        if flag & (pays | strategy.software) & ~CHOSEN:
            changed = replace(strategy, software=strategy.software ^ flag)
            if not broken_laws(changed, context):
                yield changed


def _stage_steps(
    context: Context, strategy: Strategy, choices: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, Strategy]]:
    """Yield legal steps of single stages, with their axis; nothing if all stages are equal."""
    if strategy.layers_per_stage is None and strategy.stage_choices is None:
        return
    flat = StrategySpace(choices=choices, context=context)
    moves = Moves(StagedSpace(flat=flat, reach=context.model.layer_count, recompute=True, halves=True, offload=True))
    staged = strategy.stage_choices is not None
    steps = {
        "layers": itertools.islice(moves.shifts(strategy, -1), STEPS * strategy.pp),
        "recompute": moves.recomputes(strategy, -1) if staged else (),
        "tp": moves.halves(strategy) if staged else (),
        "offload": moves.offloads(strategy, -1) if strategy.stage_offload is not None else (),
    }
    for axis, changed in ((axis, changed) for axis, each in steps.items() for changed in each):
        if not broken_laws(changed, context):
            yield axis, changed


def _ways(axis: str, present: int, choices: tuple[int, ...]) -> list[list[int]]:
    """Return lists of choices whose first legal one is a step: larger numbers, smaller numbers, each named choice."""
    if axis in NAMED:
        return [[value] for value in choices if value != present]
    return [[value for value in choices if value > present], [value for value in choices[::-1] if value < present]]


def difference(old: Strategy, new: Strategy) -> str:
    """Describe the changes from one strategy to another.

    >>> difference(Strategy(tp=4, dp=2), Strategy(tp=8, sp=True))
    'tp4 -> tp8, dp2 -> dp1, +sp'
    """
    before, after = _words(old), _words(new)
    parts = []
    for name in {**before, **after}:
        if before.get(name) == after.get(name):
            continue
        if name in before and name in after:
            parts.append(f"{before[name]} -> {after[name]}")
        else:
            parts.append(f"+{after[name]}" if name in after else f"-{before[name]}")
    return ", ".join(parts)


def _words(strategy: Strategy) -> dict[str, str]:
    """Return the words of a strategy's string by their axis."""
    return {re.split(r"[=\d]", word)[0]: word for word in str(strategy).split()}


def _repair(
    axis: str, values: dict[str, int], context: Context, choices: Mapping[str, tuple[int, ...]], present: Strategy
) -> Strategy | None:
    """Return the first legal strategy with the changed axis and the fewest other changes."""
    stage = values["tp"] * values["pp"] * values["cp"]
    if values["gpus"] % stage:
        return None
    values["dp"] = values["gpus"] // stage
    # Choices without meaning after the change are reset, unless they are the change itself: then the laws give the
    # reason.
    policy = context.framework.legality.sequence_parallel
    if values["tp"] == 1:
        values["sp"] = 0 if axis != "sp" else values["sp"]
    elif axis == "tp" and policy == "always":
        values["sp"] = 1
    if values["dp"] * values["cp"] == 1 and axis != "zero":
        values["zero"] = 0
    if axis != "shard" and (not values["zero"] or values["dp"] * values["cp"] % (values["shard"] or 1)):
        values["shard"] = ALL_REPLICAS
    if (values["pp"] == 1 or values["dp"] == 1) and axis != "placement":
        values["placement"] = 0
    if axis == "recompute_layers" and values["recompute_layers"]:
        values["recompute"] = int(Recompute.FULL)
    elif axis != "recompute_layers" and values["recompute"] != Recompute.FULL:
        values["recompute_layers"] = 0
    for attempt in _attempts(axis, values, choices):
        for changed in _kept(context, axis, attempt, present):
            if not broken_laws(changed, context):
                return changed
    return None


def _kept(context: Context, axis: str, values: dict[str, int], present: Strategy) -> Iterator[Strategy]:
    """Yield the strategy of some numbers with the present settings per stage, then without.

    Nothing is yielded if its halves do not match or no layers are named.
    """
    same = values["pp"] == present.pp
    layers = present.layers_per_stage if same and values["split"] >= CUSTOM_SPLIT else None
    if values["split"] >= CUSTOM_SPLIT and layers is None:
        return
    entries = present.stage_recompute if same and axis != "recompute" else None
    settings = {**values, "recompute": max(values["recompute"], 0)}
    columns = {name: np.array([value], dtype=np.int64) for name, value in settings.items()}
    on = (present.software & ~CHOSEN) | values["switches"]
    settings["software"] = int(on & does_something(columns, context)[0])
    other = present.second_tp if same and present.second_tp != values["tp"] else None
    offload = present.stage_offload if same else None
    stage_choices = StageChoices(second_tp=other, recompute=entries, offload=offload)
    for stages in dict.fromkeys((stage_choices, StageChoices(offload=offload), StageChoices())):
        try:
            yield strategy_of(settings, layers, stages)
        except RequestError:
            continue


def _attempts(axis: str, values: dict[str, int], choices: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, int]]:
    """Yield values with every choice of the axes that depend on the changed one, the present choice first."""
    looped = [(values["vpp"], values["schedule"])]
    if axis in ("pp", "vpp"):
        looped += [(vpp, schedule) for vpp, schedule in _loops(values["vpp"]) if axis == "pp" or vpp == values["vpp"]]
    if axis == "schedule":
        looped += [(vpp, values["schedule"]) for vpp in choices["vpp"]]
    splits = [values["split"]] if axis == "split" else _ordered(values["split"], choices["split"])
    # A larger dp may not divide the microbatches; a smaller one divides whenever the larger one did.
    sizes = [values["mbs"]] if axis == "mbs" else [m for m in choices["mbs"][::-1] if m <= values["mbs"]]
    for (vpp, schedule), mbs, split in itertools.product(looped, sizes or [values["mbs"]], splits):
        yield {**values, "vpp": vpp, "schedule": schedule, "mbs": mbs, "split": split}


def _loops(vpp: int) -> list[tuple[int, int]]:
    """Return compatible (vpp, schedule) pairs, those with the present number of virtual stages first."""
    pairs = [(vpp, int(Schedule.INTERLEAVED if vpp > 1 else Schedule.ONE_F_ONE_B)), (1, int(Schedule.ONE_F_ONE_B))]
    return list(dict.fromkeys(pairs))


def _ordered(present: int, choices: tuple[int, ...]) -> list[int]:
    """Return choices with the present one first; explicit layers are impossible with another number of stages."""
    return list(dict.fromkeys([present, *choices]))
