"""What a framework does not have: masks of the rows that need it, and messages, for the laws of ``rules``.

Arithmetic has its laws in ``rules`` itself; those here read the framework's ``legality`` alone.
"""

from collections.abc import Callable, Mapping

import numpy as np

from forerun.spaces.strategies.axes import SPELLING
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.table import CUSTOM_SPLIT, Columns, Mask


def degree_unsupported(c: Columns, x: Context) -> Mask:
    """Degrees of an axis that the framework does not have; experts are then cut as the rest of a layer is."""
    broken = np.zeros(np.broadcast_shapes(*(np.shape(c[axis]) for axis in ("pp", "tp", "cp", "ep", "etp"))), dtype=bool)
    for axis in _degrees_absent(x):
        broken |= (c[axis] > 1) & (axis != "etp" or c["etp"] != c["tp"])
    return broken


def no_such_degree(v: Mapping[str, int], x: Context) -> str:
    """Return the message of ``degree_unsupported``, which names the axes that were asked for alone."""
    asked = [axis for axis in _degrees_absent(x) if v[axis] > 1 and not (axis == "etp" and v["etp"] == v["tp"])]
    got, fix = " ".join(f"{axis}={v[axis]}" for axis in asked), " ".join(f"{axis}=1" for axis in asked)
    return f"{x.framework.name} offers no {' and no '.join(asked)}, but got {got}; use {fix}, or another framework"


def _degrees_absent(x: Context) -> list[str]:
    legality = x.framework.legality
    offered = {
        "pp": legality.pipeline_parallel,
        "tp": legality.tensor_parallel,
        "cp": legality.context_parallel,
        "ep": legality.expert_parallel,
        "etp": legality.expert_tensor,
    }
    return [axis for axis, offers in offered.items() if not offers]


def unsupported(axis: str, spellings: str) -> Callable[[Columns, Context], Mask]:
    """Return the predicate "the framework does not have this choice" for a named axis."""

    def illegal(c: Columns, x: Context) -> Mask:
        allowed = [n for n, name in SPELLING[axis].items() if name in getattr(x.framework.legality, spellings)]
        return ~np.isin(c[axis], [*allowed, *range(CUSTOM_SPLIT, CUSTOM_SPLIT + 64)] if axis == "split" else allowed)

    return illegal


def no_such(axis: str, spellings: str) -> Callable[[Mapping[str, int], Context], str]:
    """Return the message of ``unsupported``."""
    return lambda v, x: (
        f"{x.framework.name} has no {axis} {SPELLING[axis].get(v[axis], v[axis])}; "
        f"it has {', '.join(getattr(x.framework.legality, spellings))}"
    )


def split_unsupported(c: Columns, x: Context) -> Mask:
    """A single stage needs no choice of split, so EVEN is always there for it."""
    return np.asarray(unsupported("split", "splits")(c, x) & ~((c["pp"] == 1) & (c["split"] == 0)))


def zero_unsupported(c: Columns, x: Context) -> Mask:
    """Stages of ZeRO that the framework does not have, or not with pipelines."""
    legality = x.framework.legality
    return ~np.isin(c["zero"], legality.zero_stages) | ((c["pp"] > 1) & (c["zero"] > legality.zero_with_pipeline))


def sp_unsupported(c: Columns, x: Context) -> Mask:
    """Sequence parallelism where the framework never has it, or none where it always does."""
    policy = x.framework.legality.sequence_parallel
    off, on = (c["sp"] == 0) & (c["tp"] > 1), c["sp"] == 1
    broken = {"optional": np.zeros_like(on), "always": off, "never": on}[policy]
    needed = x.framework.legality.sp_with_experts and x.moe
    return np.asarray(broken | (off & (c["ep"] > 1)) if needed else broken)


def shard_unsupported(c: Columns, x: Context) -> Mask:
    """States shared by a part of the replicas that the framework shares by all."""
    asked, legality = c["shard"] > 0, x.framework.legality
    if not asked.any():
        return np.asarray(asked)
    broken = ~np.isin(c["zero"], legality.partial_zero)
    if legality.shards_context:
        broken = broken | (c["shard"] % c["cp"] != 0)
    return np.asarray(asked & broken)


def no_such_shard(v: Mapping[str, int], x: Context) -> str:
    """Return the message of ``shard_unsupported``."""
    stages = [stage for stage in x.framework.legality.partial_zero if stage]
    if v["zero"] == 0:
        return f"zero=0 shards nothing that shard={v['shard']} replicas could share; drop shard="
    if v["zero"] not in stages:
        had = f" but with zero {' or '.join(map(str, stages))}" if stages else ""
        return (
            f"{x.framework.name} shards over all replicas{had}, but got zero={v['zero']} shard={v['shard']}; "
            "use shard=all"
        )
    return (
        f"{x.framework.name} shards over whole context-parallel groups, but shard={v['shard']} is no multiple of "
        f"cp={v['cp']}; use a multiple of {v['cp']}"
    )
