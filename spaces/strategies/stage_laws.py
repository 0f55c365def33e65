"""Laws of strategies with different stages, and all broken laws of a strategy."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.spaces.schedules.catalogue import SCHEDULES, schedule_of
from forerun.spaces.strategies.axes import SPELLING, Placement, Recompute
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.framework_laws import no_such_recompute, recompute_redundant, recompute_unsupported
from forerun.spaces.strategies.rules import violations
from forerun.spaces.strategies.stage_offload import OFFLOAD_WORDS, StageOffload
from forerun.spaces.strategies.stages import explicit_layers_broken, layers_per_virtual_stage, split_is_legal
from forerun.spaces.strategies.strategy import Strategy
from forerun.spaces.strategies.table import axis_values


def broken_laws(strategy: Strategy, context: Context) -> list[str]:
    """Return one message for each law that a strategy breaks; empty if it is legal."""
    broken: list[str] = []
    for second in (False, True) if strategy.second_tp is not None else (False,):
        flat = flat_half(strategy, second)
        where = "second half: " if second else ""
        messages = [f"{where}{message}" for _, message in violations(axis_values(flat), context)]
        broken += [message for message in messages if message.removeprefix(where) not in broken]
    named = explicit_layers_broken(strategy, context.model.layer_count)
    broken += [named] if named else []
    return broken + stage_choices_broken(strategy, context)


def flat_half(strategy: Strategy, second: bool) -> Strategy:
    """Return the flat strategy whose laws apply to one half of the stages, without ineffective settings."""
    changed: dict[str, Any] = {}
    if strategy.stage_recompute is not None:
        changed = {"stage_recompute": None, "recompute": strategy.stage_recompute[0].kind, "recompute_layers": 0}
    if strategy.second_tp is not None:
        (tp, dp, mbs), (other_tp, other_dp, _) = strategy.half_degrees(second), strategy.half_degrees(not second)
        changed |= {"tp": tp, "dp": dp, "mbs": mbs, "second_tp": None}
        changed["sp"] = strategy.sp and (tp > 1 or other_tp == 1)
        changed["zero"] = strategy.zero if dp * strategy.cp > 1 or other_dp * strategy.cp == 1 else 0
        changed["placement"] = strategy.placement if dp > 1 else Placement.TP_CP_EP_DP_PP
    return dataclasses.replace(strategy, **changed) if changed else strategy


def stage_choices_broken(strategy: Strategy, context: Context) -> list[str]:
    """Return the errors in a strategy's choices per stage or half, except its layers."""
    if strategy.stage_choices is None:
        return []
    hosted = offload_broken(strategy, context)
    if not of_whole_stages(strategy):
        names = " or ".join(schedule.name for schedule in SCHEDULES.values() if schedule.whole_stages)
        return [
            *hosted,
            "stages that differ in tp, recompute or offload need one whole stage on every device under schedule "
            f"{names}, but got schedule {SPELLING['schedule'][int(strategy.schedule)]} and vpp={strategy.vpp}",
        ]
    kinds = [*dict.fromkeys(int(entry.kind) for entry in strategy.stage_recompute or ())]
    unsound = unsound_kinds(kinds, context)
    broken = [no_such_recompute({"recompute": kind}, context) for kind in kinds if kind in unsound]
    return hosted + broken + stage_layers_broken(strategy, context)


def offload_broken(strategy: Strategy, context: Context) -> list[str]:
    """Return the errors in the shares of tensors on the host.

    The framework may not support offload, or the cluster may have no rate for its host links.
    """
    if strategy.stage_offload is None:
        return []
    columns = zip(OFFLOAD_WORDS, zip(*strategy.stage_offload, strict=True), immovable(context), strict=True)
    return [
        f"{word}= moves tensors to the host, but {why}; drop it" for word, shares, why in columns if why and any(shares)
    ]


def immovable(context: Context) -> tuple[str, str]:
    """Return the reasons against shares of optimizer states, and of activations, on the host; "" without any."""
    profile, cluster = context.framework, context.cluster
    linked = cluster.host.get("bytes_per_s_per_device") or cluster.device.host_bytes_per_s
    reasons = [] if linked else [f"{cluster.name} does not say how fast its host links are (host.rate)"]
    lacks = [[f"{profile.name} has no switch {word}"] * (word not in dict(profile.switches)) for word in OFFLOAD_WORDS]
    if profile.optimizer != "adam":
        lacks[0].append(f"the host updates Adam alone, and {profile.optimizer} runs")
    states, activations = (" and ".join([*lacking, *reasons]) for lacking in lacks)
    return states, activations


def offloadable(context: Context) -> StageOffload:
    """Return 1.0 for tensors of which each stage may keep a share on the host, and 0.0 for others."""
    return StageOffload(*(0.0 if why else 1.0 for why in immovable(context)))


def of_whole_stages(strategy: Strategy) -> bool:
    """Check whether every device has one stage, so that stages may differ in more than their layers."""
    return schedule_of(strategy.schedule).whole_stages and strategy.vpp == 1


def unsound_kinds(kinds: Sequence[int], context: Context) -> frozenset[int]:
    """Return the kinds of recompute that the framework does not have, or that do not apply to the model."""
    column = {"recompute": np.array(kinds, dtype=np.int64)}
    unsound = recompute_unsupported(column, context) | recompute_redundant(column, context)
    return frozenset(column["recompute"][unsound].tolist())


def stage_layers_broken(strategy: Strategy, context: Context) -> list[str]:
    """Return the error in the numbers of recomputed layers by stage."""
    entries, legality = strategy.stage_recompute or (), context.framework.legality
    partial = [entry for entry in entries if entry.layers is not None]
    broken = []
    if any(entry.kind != Recompute.FULL for entry in partial):
        broken.append("only recompute=full can name a number of layers; write full:3, or selective for all layers")
    if partial and not legality.recompute_layers:
        broken.append(f"{context.framework.name} recomputes all layers of a stage or none; drop the number of layers")
    counts = stage_counts(strategy, context) if partial else None
    if counts is not None:
        for stage, (entry, layers) in enumerate(zip(entries, counts, strict=True)):
            if entry.layers is not None and not 0 < entry.layers < layers:
                broken.append(
                    f"stage {stage} has {layers} layers and cannot recompute {entry}; name 1 to {layers - 1} layers, "
                    "or none or full without a number"
                )
                break
    return broken


def stage_counts(strategy: Strategy, context: Context) -> Sequence[int] | None:
    """Return the layers of every stage of a strategy with one stage per device; None where no assignment exists."""
    layers = context.model.layer_count
    if strategy.layers_per_stage is not None:
        return strategy.layers_per_stage
    if strategy.vpp > 1 or not split_is_legal(layers, strategy.pp, strategy.split):
        return None
    return layers_per_virtual_stage(layers, strategy.pp, strategy.split, context.head_layers)


def halves_fit(value: Mapping[str, int], dp: int, second_tp: int) -> bool:
    """Check whether stages can keep their devices and their share of a microbatch with another tp."""
    return dp * value["tp"] % second_tp == 0 and value["mbs"] * second_tp % value["tp"] == 0
