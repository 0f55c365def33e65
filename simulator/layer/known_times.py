"""Cache of block times."""

from dataclasses import fields
from functools import lru_cache

from forerun.simulator.layer import known_work
from forerun.simulator.layer.asked import Asked, asked
from forerun.simulator.layer.remembered import Remembered
from forerun.simulator.layer.shard import Shard
from forerun.simulator.layer.times import BlockTimes, block_times
from forerun.spaces.strategies import Context


@lru_cache(maxsize=256)
def _known(_: Asked) -> Remembered[BlockTimes]:
    return Remembered([each.name for each in fields(Shard)])


def known_block_times(context: Context, shard: Shard) -> BlockTimes:
    """Return ``block_times(context, shard)``; only shards that are not cached are computed."""
    return _known(asked(context)).columns(shard, lambda new: block_times(context, new))


def forget() -> None:
    """Clear the cache after a change of the cost rules' own constants, as in benchmarks that refit them."""
    _known.cache_clear()
    known_work.forget()
