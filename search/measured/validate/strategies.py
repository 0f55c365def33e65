"""Columns about the strategy -> a strategy."""

import math
from collections.abc import Mapping
from typing import Any

from forerun.search.measured.validate.cells import Filled, Skip, integer, required
from forerun.search.measured.validate.columns import TableRow
from forerun.search.measured.validate.facts import Facts, light_last
from forerun.search.measured.validate.machines import devices_of
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.models.model import MixtureOfExperts, Model
from forerun.spaces.strategies import (
    ALL_REPLICAS,
    SPELLING,
    Recompute,
    Schedule,
    Split,
    Strategy,
    parse_named,
    parse_strategy,
)
from forerun.spaces.strategies.stages import split_is_legal

SCHEDULES = {
    "": None,
    **{name: Schedule(number) for number, name in SPELLING["schedule"].items()},
    "grad-accum": Schedule.ONE_F_ONE_B,
    "baseline": Schedule.ONE_F_ONE_B,
    "redis": Schedule.ONE_F_ONE_B,
    "vocab-1": Schedule.ONE_F_ONE_B,
    "vocab-2": Schedule.ONE_F_ONE_B,
    "interlaced": Schedule.ONE_F_ONE_B,
}
"""Spelling of schedules. The schedules of vocab_parallel are plain 1F1B: "baseline", "redis" with layers moved, the
last three with a part of the vocabulary on every stage (``FrameworkProfile.vocabulary``)."""


LIGHTENED = 4
"""Number of stages from which LiBai's last stage is lighter."""


def strategy_of(
    row: TableRow, facts: Facts, framework: FrameworkProfile, model: Model, filled: Filled, defaults: Mapping[str, Any]
) -> Strategy:
    """Return the strategy of a row; ``defaults`` are its framework's defaults (zero, sp, etp_is_tp).

    Raises:
        Skip: a degree is missing, the degrees contradict each other, or a choice is unknown.
    """
    if row["strategy"]:
        return _stated(row)
    dp, tp, pp, cp = _degrees(row, framework, filled)
    ep = integer(row, "ep") or filled.of("ep", 1)
    if (dp * tp * cp) % ep:
        raise Skip("ep does not divide dp*tp*cp")
    etp = _expert_tensor(facts, model, dp * tp * cp // ep, tp, defaults, filled)
    mbs = integer(row, "micro_batch") or filled.of("micro_batch", 1)
    if dp * mbs > required(row, "global_batch", "strategy"):
        raise Skip("dp*micro_batch is more than global_batch")
    schedule, vpp = _schedule(row, pp, filled)
    split, stages = _split(facts, framework, model, pp, vpp, filled)
    if defaults.get("lightens_last") and stages is None and split == Split.EVEN and pp >= LIGHTENED:
        stages = lightened(model.layer_count, pp)
    zero = _zero(row, defaults, filled)
    try:
        return Strategy(
            dp=dp,
            tp=tp,
            pp=pp,
            cp=cp,
            ep=ep,
            etp=etp,
            mbs=mbs,
            vpp=vpp,
            schedule=schedule,
            split=split,
            layers_per_stage=stages,
            zero=zero,
            shard=_shard(facts, dp * cp) if zero else ALL_REPLICAS,
            sp=_sequence_parallel(row, tp, framework, defaults, filled),
            recompute=_recompute(row, facts, filled, defaults),
        )
    except RequestError as error:
        raise Skip(f"no strategy: {error}") from None


def _degrees(row: TableRow, framework: FrameworkProfile, filled: Filled) -> tuple[int, int, int, int]:
    """Return dp, tp, pp and cp, whose product is the row's devices.

    A blank degree is the quotient of the devices by the others. Of several blank ones, the degree that the framework
    supports gets the quotient, and others are 1.

    Raises:
        Skip: the product is not the number of devices, or several degrees could have the quotient.
    """
    legality = framework.legality
    stated = {column: integer(row, column) for column in ("dp", "tp", "pp", "cp")}
    left, rest = divmod(devices_of(row, filled), math.prod(value or 1 for value in stated.values()))
    blank = [column for column, value in stated.items() if not value]
    possible = {"dp": True, "tp": legality.tensor_parallel, "pp": legality.pipeline_parallel, "cp": blank == ["cp"]}
    takers = [column for column in blank if possible[column]] if left > 1 else []
    if rest or (left > 1 and not takers):
        raise Skip("dp*tp*pp*cp is not gpus")
    if len(takers) > 1:
        raise Skip(f"missing strategy: {' or '.join(takers)}")
    dp, tp, pp, cp = (
        value or filled.of("cp" if column == "cp" else "degree", left if column in takers else 1)
        for column, value in stated.items()
    )
    return dp, tp, pp, cp


def _expert_tensor(facts: Facts, model: Model, ranks: int, tp: int, defaults: Mapping[str, Any], filled: Filled) -> int:
    """Return the tensor degree of the experts; ``ranks`` devices of a stage have parts of the same expert."""
    if not any(isinstance(layer.mlp, MixtureOfExperts) for layer in model.layers):
        return 1
    if facts.expert_tensor is not None:
        if ranks % facts.expert_tensor:
            raise Skip("ep*etp does not divide dp*tp*cp")
        return facts.expert_tensor
    as_tp = defaults.get("etp_is_tp", 0) and tp > 1 and ranks % tp == 0
    return filled.of("etp", tp if as_tp else 1) if tp > 1 else 1


def _stated(row: TableRow) -> Strategy:
    """Return the strategy text of a row; columns of degrees must not contradict it."""
    try:
        strategy = parse_strategy(row["strategy"])
    except RequestError as error:
        raise Skip(f"no strategy: {error}") from None
    for column, value in (("gpus", strategy.devices), ("dp", strategy.dp), ("tp", strategy.tp), ("pp", strategy.pp)):
        if (stated := integer(row, column)) and stated != value:
            raise Skip(f"{column} contradicts the strategy")
    return strategy


def _schedule(row: TableRow, pp: int, filled: Filled) -> tuple[Schedule, int]:
    """Return schedule and virtual stages per device."""
    text = row["schedule"].lower().partition(":")[0]
    if text not in SCHEDULES:
        raise Skip(f"unknown schedule {text}")
    if pp == 1:
        return Schedule.ONE_F_ONE_B, 1
    vpp = integer(row, "virtual_pp") or filled.of("virtual_pp", 1)
    schedule = SCHEDULES[text]
    if schedule is None:
        schedule = filled.of("schedule", Schedule.INTERLEAVED if vpp > 1 else Schedule.ONE_F_ONE_B)
    if schedule == Schedule.ONE_F_ONE_B and vpp > 1:
        schedule = filled.of("schedule", Schedule.INTERLEAVED)
    # Interleaving over one virtual stage per device is 1F1B.
    return (Schedule.ONE_F_ONE_B if schedule == Schedule.INTERLEAVED and vpp == 1 else schedule), vpp


def _split(
    facts: Facts, framework: FrameworkProfile, model: Model, pp: int, vpp: int, filled: Filled
) -> tuple[Split, tuple[int, ...] | None]:
    """Return the division of layers into stages: as stated, even, or by the rule for uneven counts."""
    layers = model.layer_count
    if pp == 1:
        return Split.EVEN, None
    if facts.layers_per_stage is not None and vpp == 1:
        if len(facts.layers_per_stage) != pp or sum(facts.layers_per_stage) != layers:
            raise Skip("stated layers per stage do not add up")
        even = len(set(facts.layers_per_stage)) == 1
        return Split.EVEN, None if even else facts.layers_per_stage
    stages = pp * vpp
    if layers < stages and layers + 2 != stages:  # embedding and head may have a stage of their own
        raise Skip("more stages than layers")
    if pp > 1 and framework.legality.splits == ("by-cost",):
        return Split.BY_COST, None
    if layers % stages == 0:
        return Split.EVEN, None
    if not facts.light_ends:
        filled.of("split", None)
    predicts = model.mtp_layers > 0 and "light-mtp" in framework.legality.splits
    if predicts and split_is_legal(layers, stages, Split.LIGHT_MTP):
        return Split.LIGHT_MTP, None
    if stages > 2 and (layers + 2) % stages == 0:
        return Split.LIGHT_ENDS, None
    return (Split.LIGHT_LAST if (layers + 1) % stages == 0 else Split.BALANCED), None


def lightened(layers: int, pp: int) -> tuple[int, ...] | None:
    """Return the layers of stages with LiBai's lighter last stage: it gives a layer to each other stage, and takes one
    back.

    >>> lightened(24, 4), lightened(48, 8)
    ((6, 7, 7, 4), (6, 6, 7, 7, 7, 7, 7, 1))
    """
    each = layers // pp
    return light_last(layers, pp, each + 1 - min(pp - 1, each))


def _zero(row: TableRow, defaults: Mapping[str, Any], filled: Filled) -> int:
    """Return the stage of optimizer sharding."""
    stated = integer(row, "zero_stage")
    return filled.of("zero_stage", defaults.get("zero", 0)) if stated is None else stated


def _shard(facts: Facts, replicas: int) -> int:
    """Return the number of replicas that share sharded states: all, unless the row states fewer."""
    if facts.shard_ranks is None or facts.shard_ranks >= replicas:
        return ALL_REPLICAS
    if replicas % facts.shard_ranks:
        raise Skip("optimizer sharded over ranks that do not divide the replicas")
    return facts.shard_ranks


def _sequence_parallel(
    row: TableRow, tp: int, framework: FrameworkProfile, defaults: Mapping[str, Any], filled: Filled
) -> bool:
    """Return whether norms and dropout are split over the tensor-parallel ranks."""
    text = row["sequence_parallel"].lower()
    if text not in ("", "0", "1", "true", "false"):
        raise Skip("sequence_parallel is neither 0 nor 1")
    if tp == 1:
        return False
    if not text:
        always = framework.legality.sequence_parallel == "always"
        return filled.of("sequence_parallel", always or bool(defaults.get("sp", 0)))
    return text in ("1", "true")


def _recompute(row: TableRow, facts: Facts, filled: Filled, defaults: Mapping[str, Any]) -> Recompute:
    text = row["recompute"].lower()
    if text == "selective" and facts.recomputed:
        text = facts.recomputed
    if not text:
        return filled.of("recompute", Recompute(parse_named("recompute", defaults.get("recompute", "none"))))
    try:
        return Recompute(parse_named("recompute", text))
    except RequestError:
        raise Skip(f"unknown recompute {text}") from None
