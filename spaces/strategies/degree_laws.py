"""Laws of degrees, schedules and sharded states that hold for every framework: predicates of ``rules.RULES``.

Each gets one integer array per axis that its rule names and returns the mask [N] of broken rows.
"""

from collections.abc import Mapping

import numpy as np

from forerun.spaces.divisors import divisors
from forerun.spaces.strategies.axes import SPELLING, Schedule, Split
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.stages import split_is_legal
from forerun.spaces.strategies.table import Columns, IntArray, Mask


def kv_broken(c: Columns, x: Context) -> Mask:
    """tp divides the key/value heads, or is divided by them where the framework copies them."""
    divides = x.kv_heads % c["tp"] == 0
    if x.framework.legality.kv_replication:
        divides |= c["tp"] % x.kv_heads == 0
    return np.asarray(~divides)


def split_broken(c: Columns, x: Context) -> Mask:
    """Every virtual stage gets layers. One Python call per distinct (virtual stages, split): a few hundred at most."""
    stages = np.where(c["schedule"] == Schedule.DUALPIPE, c["pp"], c["pp"] * c["vpp"])
    key = stages * 8 + np.minimum(c["split"], 7)
    distinct, inverse = np.unique(key, return_inverse=True)
    legal = [split == 7 or _deals(x, stages, split) for stages, split in (divmod(int(k), 8) for k in distinct)]
    return ~np.array(legal, dtype=bool)[inverse.reshape(-1)]


def undealt(v: Mapping[str, int], x: Context) -> str:
    """Return the message of ``split_broken``, with the splits that do deal the layers."""
    layers, stages = x.model.layer_count, v["pp"] * (1 if v["schedule"] == Schedule.DUALPIPE else v["vpp"])
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
    """Whether a split can deal the layers of a model to so many virtual stages."""
    return split_is_legal(x.model.layer_count, stages, split) and (split != Split.LIGHT_MTP or x.model.mtp_layers > 0)


def schedule_broken(c: Columns, x: Context) -> Mask:
    """Each schedule needs its number of stages and virtual stages; a single stage has no schedule."""
    schedule, pp, vpp = c["schedule"], c["pp"], c["vpp"]
    single = (pp == 1) & (schedule != Schedule.ONE_F_ONE_B)
    looped = (schedule == Schedule.INTERLEAVED) != ((vpp > 1) & (schedule != Schedule.ZB_V))
    vee = (schedule == Schedule.ZB_V) & (vpp != 2)
    dual = (schedule == Schedule.DUALPIPE) & ((pp % 2 != 0) | (vpp != 1))
    return np.asarray(single | looped | vee | dual | ((pp == 1) & (vpp > 1)))


def microbatches(c: Columns, x: Context) -> IntArray:
    """Microbatches of one replica per step, [N]."""
    return np.asarray(x.workload.global_batch // (c["dp"] * c["mbs"]))


def interleave_broken(c: Columns, x: Context) -> Mask:
    """Interleaving needs microbatches in groups of pp, DualPipe an even number of at least 2 pp."""
    count = microbatches(c, x)
    looped = (c["schedule"] == Schedule.INTERLEAVED) & (count % c["pp"] != 0)
    dual = (c["schedule"] == Schedule.DUALPIPE) & ((count % 2 != 0) | (count < 2 * c["pp"]))
    return np.asarray(looped | dual)


def inactive(c: Columns, x: Context) -> Mask:
    """Settings without an effect: another candidate is the same training."""
    sharded_replicas = c["dp"] * c["cp"]
    return np.asarray(
        ((c["sp"] == 1) & (c["tp"] == 1))
        | ((c["zero"] > 0) & (sharded_replicas == 1))
        | ((c["shard"] > 0) & (c["shard"] == sharded_replicas))
        | ((c["placement"] != 0) & ((c["pp"] == 1) | (c["dp"] == 1)))
    )


def shard_broken(c: Columns, x: Context) -> Mask:
    """Groups that share states divide the replicas and hold whole experts."""
    asked = c["shard"] > 0
    if not asked.any():
        return np.asarray(asked)
    replicas, experts = c["dp"] * c["cp"], c["ep"] * c["etp"]
    whole = (c["shard"] > 1) & (replicas % np.maximum(c["shard"], 1) == 0) & (c["shard"] * c["tp"] % experts == 0)
    return np.asarray(asked & ~whole)


def no_such_shard_degree(v: Mapping[str, int], x: Context) -> str:
    """Return the law of ``shard`` with the values ``v`` of one strategy and the nearest fix."""
    replicas, experts = v["dp"] * v["cp"], v["ep"] * v["etp"]
    options = ["all", *(str(d) for d in divisors(replicas)[1:-1] if d * v["tp"] % experts == 0)]
    law = f"shard={v['shard']} replicas that share states must be more than one and divide dp*cp = {replicas}"
    if experts > 1:
        law += f", and shard*tp = {v['shard'] * v['tp']} be divisible by ep*etp = {experts}"
    return f"{law}; use shard={' or '.join([', '.join(options[:-1]), options[-1]] if options[1:] else options)}"
