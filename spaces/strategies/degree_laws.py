"""Laws of degrees, schedules and sharded states for every framework: predicates of ``rules.RULES``.

Each predicate receives one integer array per axis of its rule and returns the mask [N] of broken rows.
"""

from collections.abc import Mapping

import numpy as np

from forerun.spaces.divisors import divisors
from forerun.spaces.schedules.catalogue import SCHEDULES, by_schedule, present, schedule_of
from forerun.spaces.strategies.axes import SPELLING, Schedule, Split
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.stages import split_is_legal
from forerun.spaces.strategies.table import Columns, IntArray, Mask


def kv_broken(c: Columns, x: Context) -> Mask:
    """Mark rows whose tp does not divide the key/value heads (or is not their multiple, if they are copied)."""
    divides = x.kv_heads % c["tp"] == 0
    if x.framework.legality.kv_replication:
        divides |= c["tp"] % x.kv_heads == 0
    return np.asarray(~divides)


def split_broken(c: Columns, x: Context) -> Mask:
    """Mark rows with a virtual stage without layers.

    There is one Python call per distinct (virtual stages, split), at most a few hundred.
    """
    stages = by_schedule(c["schedule"], lambda kind: kind.virtual_stages(c["pp"], c["vpp"]))
    key = stages * 8 + np.minimum(c["split"], 7)
    distinct, inverse = np.unique(key, return_inverse=True)
    legal = [split == 7 or _deals(x, stages, split) for stages, split in (divmod(int(k), 8) for k in distinct)]
    return ~np.array(legal, dtype=bool)[inverse.reshape(-1)]


def undealt(v: Mapping[str, int], x: Context) -> str:
    """Return the message of ``split_broken``, with the splits that are legal."""
    layers, stages = x.model.layer_count, schedule_of(v["schedule"]).virtual_stages(v["pp"], v["vpp"])
    legal = [
        f"split={name}"
        for split, name in SPELLING["split"].items()
        if name in x.framework.legality.splits and _deals(x, stages, split)
    ]
    asked = SPELLING["split"].get(v["split"], "layers")
    if v["split"] == Split.BALANCED and layers >= stages and legal:
        return f"split=balanced of {layers} layers over {stages} (virtual) stages has another name: {legal[0]}"
    others = f"{' or '.join(legal)}, or " if legal else ""
    return (
        f"{layers} layers cannot be divided among {stages} (virtual) stages by split={asked}; "
        f"use {others}a pp*vpp that divides {layers}"
    )


def _deals(x: Context, stages: int, split: int) -> bool:
    """Check whether a split can assign the layers of a model to ``stages`` virtual stages."""
    return split_is_legal(x.model.layer_count, stages, split) and (split != Split.LIGHT_MTP or x.model.mtp_layers > 0)


def schedule_broken(c: Columns, x: Context) -> Mask:
    """Mark rows with a number of stages or virtual stages that their schedule does not allow."""
    schedule, pp, vpp = c["schedule"], c["pp"], c["vpp"]
    broken = (pp == 1) & ((schedule != Schedule.ONE_F_ONE_B) | (vpp > 1))
    for kind in present(schedule):
        misfit = (vpp < kind.fewest_virtual) | (vpp > kind.most_virtual)
        if kind.ranks_multiple > 1:
            misfit |= pp % kind.ranks_multiple != 0
        broken |= (schedule == kind.number) & misfit
    return np.asarray(broken)


def no_such_shape(v: Mapping[str, int], x: Context) -> str:
    """Return the message of ``schedule_broken``."""
    laws = _needs({kind.name: kind.shape_law for kind in SCHEDULES.values()})
    return (
        f"schedule {SPELLING['schedule'][v['schedule']]} is not valid with pp={v['pp']} vpp={v['vpp']}; "
        f"pp=1 needs 1f1b and vpp=1, {laws}, the others vpp=1"
    )


def _needs(laws: Mapping[str, str]) -> str:
    """Return the laws of schedules as a text, without schedules that have none."""
    (first, law), *others = ((name, law) for name, law in laws.items() if law)
    return ", ".join((f"{first} needs {law}", *(f"{name} {law}" for name, law in others)))


def microbatches(c: Columns, x: Context) -> IntArray:
    """Return the microbatches of one replica per step, [N]."""
    return np.asarray(x.workload.global_batch // (c["dp"] * c["mbs"]))


def interleave_broken(c: Columns, x: Context) -> Mask:
    """Mark rows with a number of microbatches that their schedule does not allow (no multiple of the ranks, say)."""
    count, broken = microbatches(c, x), np.zeros(c["schedule"].shape, dtype=bool)
    for kind in present(c["schedule"]):
        illegal = kind.illegal_microbatches(c["pp"], count)
        if illegal is not None:
            broken |= (c["schedule"] == kind.number) & illegal
    return broken


def no_such_microbatches(v: Mapping[str, int], x: Context) -> str:
    """Return the message of ``interleave_broken``."""
    laws = _needs({kind.name: kind.microbatch_law for kind in SCHEDULES.values()})
    return (
        f"{x.workload.global_batch // (v['dp'] * v['mbs'])} microbatches do not fill pp={v['pp']} with schedule "
        f"{SPELLING['schedule'][v['schedule']]}; {laws}"
    )


def inactive(c: Columns, x: Context) -> Mask:
    """Mark rows with a setting without effect: another candidate is the same training."""
    sharded_replicas = c["dp"] * c["cp"]
    return np.asarray(
        ((c["sp"] == 1) & (c["tp"] == 1))
        | ((c["zero"] > 0) & (sharded_replicas == 1))
        | ((c["shard"] > 0) & (c["shard"] == sharded_replicas))
        | ((c["placement"] != 0) & ((c["pp"] == 1) | (c["dp"] == 1)))
    )


def shard_broken(c: Columns, x: Context) -> Mask:
    """Mark rows whose groups of ``shard`` replicas do not divide all replicas, or divide the ranks of experts."""
    asked = c["shard"] > 0
    if not asked.any():
        return np.asarray(asked)
    replicas, experts = c["dp"] * c["cp"], c["ep"] * c["etp"]
    legal = (c["shard"] > 1) & (replicas % np.maximum(c["shard"], 1) == 0) & (c["shard"] * c["tp"] % experts == 0)
    return np.asarray(asked & ~legal)


def no_such_shard_degree(v: Mapping[str, int], x: Context) -> str:
    """Return the law of ``shard`` with the values ``v`` of one strategy and the nearest fix."""
    replicas, experts = v["dp"] * v["cp"], v["ep"] * v["etp"]
    options = ["all", *(str(d) for d in divisors(replicas)[1:-1] if d * v["tp"] % experts == 0)]
    law = f"shard={v['shard']} replicas that share states must be more than one and divide dp*cp = {replicas}"
    if experts > 1:
        law += f", and shard*tp = {v['shard'] * v['tp']} be divisible by ep*etp = {experts}"
    return f"{law}; use shard={' or '.join([', '.join(options[:-1]), options[-1]] if options[1:] else options)}"
