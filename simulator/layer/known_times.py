"""Times of blocks that were computed before: the slices of a search ask for the same shards again and again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from forerun.simulator.layer.shard import Shard
from forerun.simulator.layer.times import BlockTimes, block_times
from forerun.simulator.score_table import Floats
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.same import Same
from forerun.spaces.strategies import Context
from forerun.spaces.workload import Workload

Entry = TypeVar("Entry", FrameworkProfile, Workload)
MOST = 1 << 15
"""Shards that are remembered of one request and its software: a dozen MiB of a model with a few kinds of layers."""
OF_WHOLE_STEPS: Mapping[str, Any] = {
    "host_layer_s": 0.0, "host_rank_s": 0.0, "pipeline_rank_s": 0.0, "host_expert_s": 0.0, "host_microbatch_s": 0.0,
    "host_step_s": 0.0, "p2p_fixed_s": 0.0, "overlap_gradients": 0.0, "overlap_parameters": 0.0,
    "graphs": "none", "overlap_pipeline": False, "switches": (),
}  # fmt: skip
"""What a profile says of passes and steps as wholes, not of what a device does for a block, with a value of each: a
calibration moves them, switches set them, and blocks take as long as before."""
OF_EXPERTS: Mapping[str, Any] = {"graphed": ()}
"""What it says besides that changes no block of a model without routed experts."""


Asked = tuple[Same[Any], ...]


def asked(context: Context) -> Asked:
    """Return the key of what block times, and costs of replicas, depend on besides the strategy."""
    framework = _of_blocks(context.framework, context.moe)
    return tuple(map(Same, (context.model, context.cluster, _of_sequences(context.workload), framework)))


@lru_cache(maxsize=64)
def _of_blocks(profile: FrameworkProfile, moe: bool) -> FrameworkProfile:
    """Return one object for all profiles that differ in ``OF_WHOLE_STEPS`` alone, or without experts ``OF_EXPERTS``."""
    return _first_equal(replace(profile, **OF_WHOLE_STEPS, **({} if moe else OF_EXPERTS)))


@lru_cache(maxsize=64)
def _of_sequences(workload: Workload) -> Workload:
    """Return one object for all workloads that differ in the sequences of a step and of the training alone."""
    return _first_equal(replace(workload, global_batch=1, tokens=None))


@lru_cache(maxsize=128)
def _first_equal(value: Entry) -> Entry:
    return value


@dataclass(slots=True)
class _Known:
    """The times of some shards and the ``place`` of each. ``state`` is replaced and never changed, so that threads that
    search at once at worst compute a shard twice."""

    state: tuple[dict[bytes, int], BlockTimes] | None = None


@lru_cache(maxsize=256)
def _known(_: Asked) -> _Known:
    return _Known()


def known_block_times(context: Context, shard: Shard) -> BlockTimes:
    """Return ``block_times(context, shard)``, computing only the shards that were not asked for before."""
    if not len(shard):
        return block_times(context, shard)
    known = _known(asked(context))
    columns = np.stack([np.asarray(getattr(shard, each.name), dtype=np.float64) for each in fields(Shard)], axis=1)
    keys = columns.view(f"V{columns.shape[1] * columns.itemsize}")[:, 0].tolist()
    place, times = known.state or ({}, None)
    new = {key: row for row, key in enumerate(keys) if key not in place}
    if len(place) + len(new) > MOST:
        place, times, new = {}, None, {key: row for row, key in enumerate(keys)}
    if new or times is None:
        found = block_times(context, _rows(shard, list(new.values())))
        times = found if times is None else _each(lambda both: np.concatenate(both, axis=1), times, found)
        place = place | {key: len(place) + number for number, key in enumerate(new)}
        known.state = place, times
    at = [place[key] for key in keys]
    return _each(lambda one: np.take(one[0], at, axis=1), times)


def forget() -> None:
    """Drop all that is remembered: a constant of the cost rules itself was changed, as benchmarks that refit it do."""
    _known.cache_clear()


def _rows(shard: Shard, rows: list[int]) -> Shard:
    return Shard(**{each.name: getattr(shard, each.name)[rows] for each in fields(Shard)})


def _each(make: Callable[[Sequence[Floats]], Floats], *times: BlockTimes) -> BlockTimes:
    """Return times every array of which is made of those of ``times``."""
    first = times[0]
    alone = None if first.alone_s is None else list(zip(*(each.alone_s or () for each in times), strict=True))
    return BlockTimes(
        forward_s=make([each.forward_s for each in times]),
        backward_s=make([each.backward_s for each in times]),
        weight_s=make([each.weight_s for each in times]),
        parts={part: make([each.parts[part] for each in times]) for part in first.parts},
        recompute={part: make([each.recompute[part] for each in times]) for part in first.recompute},
        alone_s=None if alone is None else (make(alone[0]), make(alone[1])),
    )
