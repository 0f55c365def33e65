"""Cache of devices' work for blocks, without their communication."""

from dataclasses import fields
from functools import lru_cache

from forerun.simulator.layer.asked import Asked, asked_of_devices
from forerun.simulator.layer.blocks import embedding_operators, head_operators, layer_work
from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.layer.remembered import Remembered
from forerun.simulator.layer.shard import Shard
from forerun.simulator.layer.work import Work
from forerun.spaces.strategies import Context

READ = tuple(each.name for each in fields(Shard) if each.name not in ("recompute", "away"))
"""Axes of a shard that its operators depend on; recompute and offload do not change them."""


def known_block_work(context: Context, shard: Shard) -> tuple[Work, ...]:
    """Return ``block_work(context, shard)``; only shards that are not cached are computed."""
    return _known(asked_of_devices(context)).columns(shard, lambda new: block_work(context, new))


def block_work(context: Context, shard: Shard) -> tuple[Work, ...]:
    """Return the work of every block of a model (layer kinds, embedding, head) for K shards."""
    layers = [layer_work(context, layer, shard) for layer in layer_kinds(context.model)]
    return *layers, embedding_operators(context, shard).work, head_operators(context, shard).work


@lru_cache(maxsize=64)
def _known(_: Asked) -> Remembered[tuple[Work, ...]]:
    return Remembered(READ)


def forget() -> None:
    """Clear the cache."""
    _known.cache_clear()
