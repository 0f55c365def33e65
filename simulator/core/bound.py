"""A lower bound of the step time from few axes: what lets a search pass over candidates that cannot be among the best.

Every stage runs all microbatches, and the slowest stage has at least the mean of what all stages do. So a step takes
at least the passes of all layers, embedding and head, with their exposed communication, divided by the stages, times
the microbatches. Bubbles, launches of the host, p2p transfers, gradients and the optimizer come on top.
"""

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.layer.kinds import kind_of_entry, layer_kinds
from forerun.simulator.layer.shard import layer_axes, shard_of
from forerun.simulator.layer.times import block_times
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import Model
from forerun.spaces.strategies import Context, StrategyTable


class LeastStep:
    """Lower bounds of the step time of candidates of one context and one space.

    What layers take depends on few axes and is the same for millions of candidates: every combination of those is
    computed once and remembered. Holds for strategies whose stages have equal settings, where measured runs do not
    correct the context.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.axes = layer_axes(context)
        self._radices: tuple[int, ...] = ()
        self._passes_s: Floats = np.empty(0)
        self._recompute_s: Floats = np.empty(0)
        self._least_recompute_s: Floats = np.empty(0)
        self._counts = _block_counts(context.model)

    def step_s(self, table: StrategyTable) -> Floats:
        """Return seconds [N] that no step of the candidates of ``table`` is shorter than."""
        key = self._filled(table)
        passes_s, some = self._passes_s[key], table.column("recompute_layers")
        if some.any():  # so many layers of every virtual stage are recomputed, and at least as cheap ones as any
            repeated = some * table.column("pp") * table.column("vpp")
            spared_s = np.maximum(self._recompute_s[key] - repeated * self._least_recompute_s[key], 0.0)
            passes_s = passes_s - np.where(some > 0, spared_s, 0.0)
        bound: Floats = passes_s * self._passes(table)
        return bound

    def below_s(self, prefixes: StrategyTable) -> Floats:
        """Return seconds [N] that no step of a candidate below ``prefixes`` is shorter than: those of the shortest
        passes of any choice on the layer axes that a prefix does not have, with nothing recomputed where some layers
        may be spared. Every prefix has all axes of ``_passes``."""
        known = [axis for axis in self.axes if axis in prefixes.codes]
        distinct = prefixes.distinct(*known)
        # Shards read the sharding stage whether it matters or not.
        left = [axis for axis in dict.fromkeys((*self.axes, "zero")) if axis not in known]
        radices = [len(prefixes.choices[axis]) if axis in self.axes else 1 for axis in left]
        ways = math.prod(radices)
        codes = {axis: np.repeat(prefixes.codes[axis][distinct.rows], ways) for axis in known}
        for axis, digit in zip(left, np.unravel_index(np.arange(ways), radices), strict=True):
            codes[axis] = np.tile(digit.astype(np.uint16), len(distinct.rows))
        rows = np.arange(len(distinct.rows) * ways)
        table = StrategyTable(choices=prefixes.choices, codes=codes, index=rows)
        key = self._filled(table)
        passes_s = self._passes_s[key] - self._recompute_s[key] * bool(prefixes.choices["recompute_layers"].any())
        least_s: Floats = passes_s.reshape(-1, ways).min(axis=1)[distinct.inverse] * self._passes(prefixes)
        return least_s

    def _passes(self, table: StrategyTable) -> Floats:
        """Return the passes of a microbatch [N] that a stage has time for: microbatches over stages."""
        passes = table.column("dp") * table.column("mbs") * table.column("pp")
        found: Floats = self.context.workload.global_batch / passes
        return found

    def _filled(self, table: StrategyTable) -> NDArray[np.intp]:
        """Return the number [N] of the combination of layer axes of every candidate, what it takes being known."""
        key = self._keys(table)
        new = np.flatnonzero(np.isnan(self._passes_s[key]))
        if len(new):
            part = table.take(new)
            rows = part.distinct(*self.axes).rows
            times = block_times(self.context, shard_of(self.context, part, rows))
            recompute_s = times.recompute_s
            place = key[new[rows]]
            self._passes_s[place] = self._counts @ (times.forward_s + times.backward_s)
            self._recompute_s[place], self._least_recompute_s[place] = (
                self._counts @ recompute_s,
                recompute_s[:-2].min(axis=0),
            )
        return key

    def _keys(self, table: StrategyTable) -> NDArray[np.intp]:
        """Return the number [N] of the combination of layer axes of every candidate."""
        radices = tuple(len(table.choices[axis]) for axis in self.axes)
        if radices != self._radices:  # another space: choices have other numbers
            self._radices, self._passes_s = radices, np.full(math.prod(radices), np.nan)
            self._recompute_s, self._least_recompute_s = self._passes_s.copy(), self._passes_s.copy()
        key = np.zeros(len(table), dtype=np.intp)
        for axis, radix in zip(self.axes, radices, strict=True):
            if radix > 1:
                key *= radix
                key += table.codes[axis]
        return key


def _block_counts(model: Model) -> Floats:
    """Return how many of each block a model has, [B]: layer kinds, embedding, head."""
    layers = Counter[int]()
    for kind, layer in zip(kind_of_entry(model), model.layers, strict=True):
        layers[kind] += layer.count
    return np.array([*(layers[kind] for kind in range(len(layer_kinds(model)))), 1, 1], dtype=np.float64)
