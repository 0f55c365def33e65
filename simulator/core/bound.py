"""Lower bound of the step time from few axes, with which a search skips candidates that cannot be among the best.

Every stage runs all microbatches, and the slowest stage has at least the mean work of all stages. A step therefore
takes at least the passes of all layers, embedding and head, with their exposed communication, divided by the stages,
times the microbatches. Bubbles, launches of the host, p2p transfers, gradients and the optimizer are not included.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.layer.kinds import kind_of_entry, layer_kinds
from forerun.simulator.layer.known_times import known_block_times
from forerun.simulator.layer.shard import layer_axes, shard_of
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import Model
from forerun.spaces.strategies import Context, Recompute, StrategyTable, first_layers
from forerun.spaces.strategies.axes import CHOSEN
from forerun.spaces.strategies.software import READ_BY_SOFTWARE, choices_of_software, does_something, running

NONE = np.iinfo(np.uint16).max
"""A code without a set of switches."""


class LeastStep:
    """Lower bounds of the step time of candidates of one context and one space.

    Times of layers depend on few axes and are equal for millions of candidates: every combination of these axes is
    computed once and cached, under the switches that a search turns on for it. Valid for strategies whose stages have
    equal settings, in a context without correction by measured runs.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.axes = ("software", *layer_axes(context))
        self._radices: tuple[int, ...] = ()
        self._passes_s: Floats = np.empty(0)
        self._recompute_s: Floats = np.empty(0)
        self._least_recompute_s: Floats = np.empty(0)
        self._counts = _block_counts(context.model)

    def __reduce__(self) -> tuple[type["LeastStep"], tuple[Context]]:
        """Pickle the bound without its cache, which takes longer to send than to compute."""
        return LeastStep, (self.context,)

    def step_s(self, table: StrategyTable) -> Floats:
        """Return lower bounds [N] of the step time of the candidates of ``table``, in seconds."""
        key = self._filled(table, kin=("recompute", "mbs"))
        passes_s, some = self._passes_s[key], first_layers(table.column("recompute_layers"))
        if some.any():  # at least this number of layers is recomputed, at the cost of the cheapest
            repeated = some * table.column("pp") * table.column("vpp")
            spared_s = np.maximum(self._recompute_s[key] - repeated * self._least_recompute_s[key], 0.0)
            passes_s = passes_s - np.where(some > 0, spared_s, 0.0)
        bound: Floats = passes_s * self._passes(table)
        return bound

    def below_s(self, prefixes: StrategyTable) -> Floats:
        """Return lower bounds [N] of the step time of all candidates below ``prefixes``, in seconds.

        The bounds use the shortest passes over all choices on the layer axes that a prefix lacks, without recompute
        where some layers may be spared. Every prefix has all axes of ``_passes``.
        """
        key, inverse = self._ways_below(prefixes)
        passes_s = self._passes_s[key] - self._recompute_s[key] * bool(prefixes.choices["recompute_layers"].any())
        least_s: Floats = passes_s.min(axis=1)[inverse] * self._passes(prefixes)
        return least_s

    def prepare(self, prefixes: StrategyTable) -> None:
        """Cache the times of all continuations of ``prefixes`` at once; slices need few of them at a time."""
        if len(prefixes):
            self._ways_below(prefixes)

    def _ways_below(self, prefixes: StrategyTable) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the combinations of layer axes below the K distinct prefixes, [K, W], and each prefix's kind [N].

        The combinations are given by number, and their times are cached afterwards.
        """
        known = [axis for axis in self.axes if axis in prefixes.codes]
        # Shards always read the ZeRO stage, and switches always read whether stages are virtual.
        more = ("zero", "vpp", "switches")
        left = [axis for axis in dict.fromkeys((*self.axes[1:], *more)) if axis not in prefixes.codes]
        radices = [len(prefixes.choices[axis]) if axis in (*self.axes, *more[1:]) else 1 for axis in left]
        if prefixes.choices["recompute"][0] == Recompute.NONE and not self.context.framework.activations_on_host:
            # Any recompute takes longer. It excludes switches, but the continuations have these on and off.
            radices[left.index("recompute")] = 1
        count = math.prod(radices)
        ways = dict(zip(left, np.unravel_index(np.arange(count), radices), strict=True))
        software, kind = self._software_below(prefixes, ways)
        choices = {**prefixes.choices, "software": choices_of_software(self.context), "kind": np.arange(len(software))}
        kinds = StrategyTable(choices=choices, codes={**prefixes.codes, "kind": kind}, index=prefixes.index)
        distinct = kinds.distinct("kind", *known)
        codes = {axis: np.repeat(prefixes.codes[axis][distinct.rows], count) for axis in known}
        for axis, digit in ways.items():
            codes[axis] = np.tile(digit.astype(np.uint16), len(distinct.rows))
        codes["software"] = software[kind[distinct.rows]].reshape(-1)
        key = self._filled(StrategyTable(choices=choices, codes=codes, index=np.arange(len(distinct.rows) * count)))
        return key.reshape(-1, count), distinct.inverse

    def _software_below(
        self, prefixes: StrategyTable, ways: Mapping[str, NDArray[np.intp]]
    ) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
        """Return the switches for each continuation [W] of the K distinct prefixes, [K, W], and each prefix's kind [N].

        Switches are those at the largest number of microbatches: where that turns a switch on, a continuation with the
        switch off also exists.
        """
        count = len(next(iter(ways.values())))
        if not self.context.free_software:
            return np.zeros((1, count), dtype=np.uint16), np.zeros(len(prefixes), dtype=np.uint16)
        read = [axis for axis in (*READ_BY_SOFTWARE, "switches") if axis not in ("dp", "mbs")]
        distinct = prefixes.distinct(*(axis for axis in read if axis not in ways))
        columns = {
            axis: np.tile(prefixes.choices[axis][ways[axis]], len(distinct.rows))
            if axis in ways
            else np.repeat(prefixes.choices[axis][prefixes.codes[axis][distinct.rows]], count)
            for axis in read
        }
        columns |= dict.fromkeys(("dp", "mbs"), np.ones_like(columns["tp"]))
        free = int(self.context.free_software & ~CHOSEN) | columns["switches"]
        on = does_something(columns, self.context) & free
        turned = np.searchsorted(choices_of_software(self.context), on).astype(np.uint16)
        kinds, kind = np.unique(turned.reshape(-1, count), axis=0, return_inverse=True)
        return kinds, kind.reshape(-1).astype(np.uint16)[distinct.inverse]

    def _passes(self, table: StrategyTable) -> Floats:
        """Return the passes of a microbatch [N] in the bound of a stage: microbatches over stages."""
        passes = table.column("dp") * table.column("mbs") * table.column("pp")
        passes_per_step: Floats = self.context.workload.global_batch / passes
        return passes_per_step

    def _filled(self, table: StrategyTable, kin: Sequence[str] = ()) -> NDArray[np.intp]:
        """Return the number [N] of every candidate's combination of layer axes, with its times cached."""
        # For missing ones, combinations that differ only in the axes ``kin`` are computed as well: other slices need
        # them, and many cost little more than a few.
        key = self._keys(table)
        new = np.flatnonzero(np.isnan(self._passes_s[key]))
        if len(new):
            part = table.take(new)
            part = part.take(part.distinct(*self.axes).rows)
            if kin:
                part = part.take(part.distinct(*(axis for axis in self.axes if axis not in kin)).rows)
                for axis in kin:
                    part = _with_every(part, axis)
            place = self._keys(part)
            own = np.where(np.isnan(self._passes_s[place]), part.codes["software"], NONE)
            for code in np.unique(own[own != NONE]):
                rows = np.flatnonzero(own == code)
                self._fill(int(part.choices["software"][code]), part, rows, place[rows])
        return key

    def _fill(self, software: int, table: StrategyTable, rows: NDArray[np.intp], place: NDArray[np.intp]) -> None:
        """Cache at ``place`` the times of some rows' combinations, all with the same switches."""
        context = running(self.context, software)
        times = known_block_times(context, shard_of(context, table, rows))
        recompute_s = times.recompute_s
        passes_s = times.forward_s + times.backward_s
        # overlapping traffic occupies multiprocessors: an unpaired pass may be the shorter one
        if times.alone_s is not None:
            passes_s = passes_s + np.minimum(sum(times.alone_s), 0.0)
        self._passes_s[place] = self._counts @ passes_s
        self._recompute_s[place] = self._counts @ recompute_s
        self._least_recompute_s[place] = recompute_s[:-2].min(axis=0)

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


def _with_every(table: StrategyTable, axis: str) -> StrategyTable:
    """Return the candidates of a table with every choice of an axis."""
    count = len(table.choices[axis])
    many = table.take(np.repeat(np.arange(len(table)), count))
    return replace(many, codes={**many.codes, axis: np.tile(np.arange(count, dtype=np.uint16), len(table))})


def _block_counts(model: Model) -> Floats:
    """Return the number of each block of a model, [B]: layer kinds, embedding, head."""
    layers = Counter[int]()
    for kind, layer in zip(kind_of_entry(model), model.layers, strict=True):
        layers[kind] += layer.count
    return np.array([*(layers[kind] for kind in range(len(layer_kinds(model)))), 1, 1], dtype=np.float64)
