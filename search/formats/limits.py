"""Common limits of several formats, and their fixes."""

import dataclasses
import math
from collections.abc import Callable, Collection
from typing import Any

from forerun.search.formats.adapters import ADAPTERS
from forerun.search.formats.contract import Launch, Limit
from forerun.search.formats.layers import BY_NUMBER, nearest_split, split_of, virtual_stages
from forerun.search.formats.stages import NO_MODULES, ONE_OFFLOAD, ONE_RECOMPUTE, ONE_TP, WHOLE_STAGES
from forerun.spaces.divisors import divisors
from forerun.spaces.frameworks.recipes import MX, RECIPE
from forerun.spaces.models.model import MixtureOfExperts, Model
from forerun.spaces.schedules.catalogue import schedule_of
from forerun.spaces.strategies import (
    ALL_LAYERS,
    ALL_REPLICAS,
    SPELLING,
    Placement,
    Recompute,
    Schedule,
    Split,
    Strategy,
)
from forerun.spaces.strategies.software import unsuited
from forerun.spaces.strategies.stages import split_is_legal


def is_mixture(model: Model) -> bool:
    """Whether any layer has routed experts."""
    return any(isinstance(layer.mlp, MixtureOfExperts) for layer in model.layers)


def change(launch: Launch, **fields: Any) -> Launch:
    """Return the launch with other strategy fields and their consequences."""
    if fields.get("pp", launch.strategy.pp) != launch.strategy.pp:
        fields = {"layers_per_stage": None, "stage_recompute": None, "stage_offload": None, "second_tp": None, **fields}
    strategy = dataclasses.replace(launch.strategy, **fields)
    return dataclasses.replace(launch, strategy=canonical(strategy, launch.model.layer_count))


def canonical(strategy: Strategy, layers: int) -> Strategy:
    """Return the canonical form of a strategy: no choices without effect, and a legal split of ``layers``."""
    s, kind = strategy, schedule_of(strategy.schedule)
    fields: dict[str, Any] = {}
    if s.pp == 1:
        fields |= {"vpp": 1, "schedule": Schedule.ONE_F_ONE_B, "split": Split.EVEN, "layers_per_stage": None}
    elif kind.fewest_virtual == kind.most_virtual > 1:
        fields |= {"vpp": kind.fewest_virtual}
    elif kind.in_rounds and s.vpp == 1:
        fields |= {"schedule": Schedule.ONE_F_ONE_B}
    elif not kind.in_rounds and s.vpp > 1:
        fields |= {"schedule": Schedule.INTERLEAVED}
    if s.recompute != Recompute.FULL:
        fields |= {"recompute_layers": ALL_LAYERS}
    if s.tp == 1:
        fields |= {"sp": False}
    if s.dp * s.cp == 1:
        fields |= {"zero": 0}
    if s.dp * s.cp == 1 or not s.zero:
        fields |= {"shard": ALL_REPLICAS}
    if s.pp == 1 or s.dp == 1:
        fields |= {"placement": Placement.TP_CP_EP_DP_PP}
    s = dataclasses.replace(s, **fields)
    return dataclasses.replace(s, **_canonical_split(s, layers)) if s.pp > 1 else s


def _canonical_split(s: Strategy, layers: int) -> dict[str, Any]:
    if s.layers_per_stage is not None and s.vpp == 1 and sum(s.layers_per_stage) == layers:
        named = split_of(s.layers_per_stage, pp=s.pp, vpp=1)
        return {} if named is None else {"split": named[0], "layers_per_stage": named[1]}
    stages = virtual_stages(s)
    if s.layers_per_stage is None and split_is_legal(layers, stages, s.split):
        return {}
    fitting = nearest_split(layers, stages)
    if fitting is not None:
        return {"split": fitting, "layers_per_stage": None}
    if s.vpp > 1 and (fitting := nearest_split(layers, s.pp)) is not None:
        return {"split": fitting, "layers_per_stage": None, "vpp": 1, "schedule": Schedule.ONE_F_ONE_B}
    fewer = max(d for d in divisors(s.pp) if nearest_split(layers, d) is not None)
    alone: dict[str, Any] = {"layers_per_stage": None, "stage_recompute": None, "second_tp": None}
    merged = dataclasses.replace(s, pp=fewer, dp=s.dp * s.pp // fewer, vpp=1, **alone)
    schedule = Schedule.ONE_F_ONE_B
    split = nearest_split(layers, fewer) or Split.EVEN
    fields: dict[str, Any] = {"pp": merged.pp, "dp": merged.dp, "vpp": 1, "schedule": schedule, "split": split}
    return fields | alone


def _named(launch: Launch, axis: str) -> str:
    return f"{axis}={SPELLING[axis][int(getattr(launch.strategy, axis))]}"


def only(axis: str, allowed: Collection[Any], reason: str, **instead: Any) -> Limit:
    """Return the limit "``axis`` is one of ``allowed``"; ``instead`` are the fields to change (default: its first)."""
    first = next(iter(allowed))

    def text(launch: Launch) -> str:
        said = _named(launch, axis) if axis in SPELLING else f"{axis}={getattr(launch.strategy, axis)}"
        return f"{said}: {reason}"

    return Limit(
        broken=lambda launch: getattr(launch.strategy, axis) not in allowed,
        reason=text,
        fix=lambda launch: change(launch, **(instead or {axis: first})),
    )


def folded(launch: Launch, axis: str, **fields: Any) -> Launch:
    """Return the launch with the devices of the degree ``axis`` as replicas, and with other fields."""
    return change(launch, **{"dp": launch.strategy.dp * getattr(launch.strategy, axis), axis: 1, **fields})


def without(axis: str, reason: str) -> Limit:
    """Return the limit "``axis`` is 1"; its devices become replicas."""
    return when(lambda s: getattr(s, axis) > 1, f"{axis}={{s.{axis}}}: {reason}", folds=axis)


def no_experts(reason: str) -> Limit:
    """Return the limit "no expert parallelism"."""
    return when(lambda s: s.ep > 1 or s.etp > 1, f"ep={{s.ep}} etp={{s.etp}}: {reason}", ep=1, etp=1)


def precisions(allowed: tuple[str, ...], reason: str) -> Limit:
    """Return the limit "the precision is one of ``allowed``"."""

    def fix(launch: Launch) -> Launch:
        return dataclasses.replace(launch, workload=dataclasses.replace(launch.workload, precision=allowed[0]))

    return Limit(
        broken=lambda launch: launch.workload.precision not in allowed,
        reason=lambda launch: f"precision {launch.workload.precision}: {reason}",
        fix=fix,
    )


def _scaled_so(launch: Launch) -> Launch:
    return dataclasses.replace(launch, workload=dataclasses.replace(launch.workload, precision="mxfp8"))


MX_IS_A_PRECISION = Limit(
    broken=lambda launch: launch.workload.precision == "fp8" and launch.switches.get(RECIPE) == MX,
    reason=lambda launch: f"{RECIPE}={MX} is precision mxfp8, and not fp8",
    fix=_scaled_so,
)


TWO_STAGES_BOTH_WAYS = Limit(
    broken=lambda launch: (
        launch.switches.get("overlap-p2p") == "off"
        and (launch.strategy.pp, launch.strategy.schedule) == (2, Schedule.INTERLEAVED)
    ),
    reason=lambda launch: "overlap-p2p=off with interleaved stages on two ranks, which send to each other at once",
    fix=lambda launch: change(launch, vpp=1, schedule=Schedule.ONE_F_ONE_B),
)
SUITED = Limit(
    broken=lambda launch: bool(unsuited(launch.switches, launch.model)),
    reason=lambda launch: "; ".join(unsuited(launch.switches, launch.model)),
    fix=None,
)


def fixed(broken: Callable[[Launch], bool], reason: str, **instead: Any) -> Limit:
    """Return a limit that is fixed by setting some fields."""
    return Limit(broken=broken, reason=lambda launch: reason, fix=lambda launch: change(launch, **instead))


def when(
    broken: Callable[[Strategy], bool], reason: str, *, folds: str = "", packed: bool = False, **instead: Any
) -> Limit:
    """Return a limit on the strategy.

    Parameters
    ----------
    broken
        Whether a strategy breaks the limit.
    reason
        Text that may name fields of the strategy (``{s.tp}``).
    folds
        Degree whose devices become replicas in the fix; empty: none.
    packed
        Whether the limit applies only to launches with packed sequences.
    **instead
        Fields of the strategy in the fix.
    """
    return Limit(
        broken=lambda launch: (launch.packed or not packed) and broken(launch.strategy),
        reason=lambda launch: reason.format(s=launch.strategy),
        fix=lambda launch: folded(launch, folds, **instead) if folds else change(launch, **instead),
    )


def _expert_fix(launch: Launch) -> Launch:
    s = launch.strategy
    if not is_mixture(launch.model):
        return change(launch, ep=1, etp=1)
    devices = s.dp * s.cp * s.tp
    etp = math.gcd(s.etp, devices)
    return change(launch, etp=etp, ep=math.gcd(s.ep, devices // etp))


def _batch_fix(launch: Launch) -> Launch:
    s, batch = launch.strategy, launch.workload.global_batch
    if batch % s.dp == 0:
        return change(launch, mbs=math.gcd(s.mbs, batch // s.dp))
    return change(launch, mbs=1, dp=math.gcd(s.dp, batch))


def _unshared(launch: Launch) -> bool:
    """Whether a number of replicas, or of replicas of experts, cannot share states."""
    s = launch.strategy
    if not s.shard or s.second_tp is not None:
        return False
    return s.shard < 2 or bool(s.dp * s.cp % s.shard) or bool(s.shard * s.tp % (s.ep * s.etp))


def _not_dealt(launch: Launch) -> bool:
    """Whether the split does not fit the model's layers."""
    s, layers = launch.strategy, launch.model.layer_count
    if s.layers_per_stage is not None:
        return s.pp == 1 or s.vpp > 1 or sum(s.layers_per_stage) != layers
    return not split_is_legal(layers, virtual_stages(s), s.split)


def _deal_text(launch: Launch) -> str:
    s = launch.strategy
    how = _named(launch, "split") if s.layers_per_stage is None else f"layers={','.join(map(str, s.layers_per_stage))}"
    return f"{launch.model.layer_count} layers cannot be divided among {virtual_stages(s)} (virtual) stages by {how}"


def _disguised(launch: Launch) -> bool:
    s = launch.strategy
    if s.second_tp is not None:
        return False  # a choice without effect in one half may have one in the other
    other = canonical(s, launch.model.layer_count)
    if _not_dealt(launch):
        other = dataclasses.replace(other, pp=s.pp, dp=s.dp, split=s.split, layers_per_stage=s.layers_per_stage)
        other = dataclasses.replace(other, vpp=s.vpp, schedule=s.schedule)
    return other != s


MEGATRON_COMMON = (
    *ADAPTERS,
    SUITED,
    TWO_STAGES_BOTH_WAYS,
    ONE_TP,
    ONE_RECOMPUTE,
    ONE_OFFLOAD,
    Limit(broken=_not_dealt, reason=_deal_text, fix=lambda launch: change(launch)),
    Limit(
        broken=_disguised,
        reason=lambda launch: (
            "it names choices that have no effect or do not fit each other (sp needs tp > 1, zero dp*cp > 1, placement "
            "pp and dp > 1, a schedule its vpp, layers= a split that no rule gives)"
        ),
        fix=lambda launch: change(launch),
    ),
    Limit(
        broken=lambda launch: (launch.strategy.ep > 1 or launch.strategy.etp > 1) and not is_mixture(launch.model),
        reason=lambda launch: f"{launch.model.name} has no experts, but ep={launch.strategy.ep}",
        fix=_expert_fix,
    ),
    Limit(
        broken=lambda launch: (
            (launch.strategy.dp * launch.strategy.cp * launch.strategy.tp) % (launch.strategy.ep * launch.strategy.etp)
            != 0
        ),
        reason=lambda launch: (
            f"dp*cp*tp = {launch.strategy.dp * launch.strategy.cp * launch.strategy.tp} devices of a stage are not "
            f"divisible by ep*etp = {launch.strategy.ep * launch.strategy.etp}"
        ),
        fix=_expert_fix,
    ),
    Limit(
        broken=_unshared,
        reason=lambda launch: (
            f"shard={launch.strategy.shard} replicas that share states must be more than one and divide dp*cp = "
            f"{launch.strategy.dp * launch.strategy.cp}, and ep*etp = {launch.strategy.ep * launch.strategy.etp} must "
            f"divide shard*tp = {launch.strategy.shard * launch.strategy.tp}"
        ),
        fix=lambda launch: change(launch, shard=ALL_REPLICAS),
    ),
    Limit(
        broken=lambda launch: launch.workload.global_batch % (launch.strategy.dp * launch.strategy.mbs) != 0,
        reason=lambda launch: (
            f"global batch {launch.workload.global_batch} is not divisible by dp*mbs = "
            f"{launch.strategy.dp * launch.strategy.mbs}"
        ),
        fix=_batch_fix,
    ),
)
"""Limits of all formats that Megatron-core reads."""
COMMON = (*MEGATRON_COMMON, WHOLE_STAGES, NO_MODULES)
"""Limits of all other formats."""


def splits_by_rule(framework: str) -> Limit:
    """Return the limit "layers are divided by number, not by cost"."""
    return when(
        lambda s: s.split not in BY_NUMBER, f"split=by-cost: {framework} divides layers by number", split=Split.EVEN
    )


MEGATRON_SCHEDULES = only(
    "schedule",
    (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED),
    "its pipeline runs 1F1B, interleaved where there are virtual stages",
    schedule=Schedule.ONE_F_ONE_B,
    vpp=1,
)
SHARED_BY_ALL = when(
    lambda s: s.shard != ALL_REPLICAS, "shard={s.shard}: it shards over all replicas", shard=ALL_REPLICAS
)
SHARED_BY_WHOLE_REPLICAS = when(
    lambda s: s.shard % s.cp != 0,
    "shard={s.shard}: it shards over whole context-parallel groups, multiples of cp={s.cp}",
    shard=ALL_REPLICAS,
)
TP_ALONE = when(
    lambda s: s.dp * s.cp == 1 and s.tp > 1,
    "tp alone: FSDP needs replicas or context ranks to shard over",
    folds="tp",
    zero=2,
)
DEFAULT_PLACEMENT = only("placement", (Placement.TP_CP_EP_DP_PP,), "it places replicas inside of pipeline stages")
NO_SELECTIVE = only(
    "recompute",
    (Recompute.FULL, Recompute.NONE),
    "it recomputes whole layers or nothing",
)
