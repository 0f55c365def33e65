"""Cache of cost columns: slices of a search need the same shards many times."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np

from forerun.simulator.layer.shard import Shard
from forerun.simulator.score_table import Floats

MOST = 1 << 15
"""Limit of cached shards of one request and its software: a dozen MiB for a model with a few kinds of layers."""
Columns = TypeVar("Columns")
"""A dataclass, mapping or tuple of arrays with shards on the last axis, or such an array."""


class Remembered(Generic[Columns]):
    """Costs of shards, computed once per distinct value of ``names``."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._place: dict[bytes, int] = {}
        self._columns: Columns | None = None
        self._lock = Lock()

    def columns(self, shard: Shard, compute: Callable[[Shard], Columns]) -> Columns:
        """Return ``compute(shard)``; only shards that are not cached are computed."""
        if not len(shard):
            return compute(shard)
        read = np.stack([np.asarray(getattr(shard, name), dtype=np.float64) for name in self.names], axis=1)
        keys = read.view(f"V{read.shape[1] * read.itemsize}")[:, 0].tolist()
        with self._lock:
            columns = self._with(keys, shard, compute)
            at = [self._place[key] for key in keys]
        found: Columns = _each(lambda one: np.take(one[0], at, axis=-1), columns)
        return found

    def _with(self, keys: list[bytes], shard: Shard, compute: Callable[[Shard], Columns]) -> Columns:
        """Return the columns of the cache, extended by shards of some ``keys``."""
        new = {key: row for row, key in enumerate(keys) if key not in self._place}
        if len(self._place) + len(new) > MOST:
            self._place, self._columns = {}, None
            new = {key: row for row, key in enumerate(keys)}
        if self._columns is None or new:
            rows = list(new.values())
            added = compute(Shard(**{each.name: getattr(shard, each.name)[rows] for each in fields(Shard)}))
            known = self._columns
            self._columns = added if known is None else _each(lambda both: np.concatenate(both, axis=-1), known, added)
            self._place.update(zip(new, range(len(self._place), len(self._place) + len(new)), strict=True))
        return self._columns


def _each(make: Callable[[Sequence[Floats]], Floats], *records: Any) -> Any:
    """Return a record whose arrays are combined from equally built ``records``."""
    first = records[0]
    if first is None:
        return None
    if isinstance(first, np.ndarray):
        return make(records)
    if isinstance(first, tuple):
        return tuple(_each(make, *parts) for parts in zip(*records, strict=True))
    if isinstance(first, Mapping):
        return {name: _each(make, *(record[name] for record in records)) for name in first}
    parts = {each.name: _each(make, *(getattr(record, each.name) for record in records)) for each in fields(first)}
    return type(first)(**parts)
