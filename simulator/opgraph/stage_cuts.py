"""Costs of all distinct cuts of the operators into stages, at once.

Shapes: C cuts of at most S stages; T stages of all cuts, in order; L operators; B gradient buckets.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.opgraph.context import GRADIENT_BYTES, GraphContext
from forerun.simulator.opgraph.footprint import whole_footprint
from forerun.simulator.opgraph.layers import Floats, added
from forerun.simulator.opgraph.messages import Filling, Messages, fill
from forerun.spaces.opgraph import Kind

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCuts:
    """Stages as runs of operators: ``start_T`` to ``end_T`` (excluded); ``place_T``: number of a stage in its cut."""

    operators: int
    first_C: Ints
    cut_T: Ints
    place_T: Ints
    start_T: Ints
    end_T: Ints

    @staticmethod
    def at(starts: Sequence[Sequence[int]], operators: int) -> "StageCuts":
        """Return the cuts with the first operators ``starts`` of every stage."""
        counts = np.array([len(one) for one in starts], dtype=np.int64)
        first = np.cumsum(counts) - counts
        return StageCuts(
            operators=operators,
            first_C=first,
            cut_T=np.repeat(np.arange(len(starts)), counts),
            place_T=np.arange(int(counts.sum())) - np.repeat(first, counts),
            start_T=np.array([start for one in starts for start in one], dtype=np.int64),
            end_T=np.array([end for one in starts for end in (*one[1:], operators)], dtype=np.int64),
        )

    @property
    def count_C(self) -> Ints:
        """Number of stages of every cut."""
        return np.diff(np.append(self.first_C, len(self.cut_T)))

    @property
    def stage_CL(self) -> Ints:
        """Stage of every operator."""
        return np.repeat(self.place_T, self.end_T - self.start_T).reshape(-1, self.operators)

    def summed(self, values: Floats) -> Floats:
        """Sum ``values`` of operators, [C, L] or [L], over every stage, [T]."""
        return np.asarray(np.add.reduceat(self._flat(values), self._begin_T), dtype=np.float64)

    def largest(self, values: Floats) -> Floats:
        """Return the largest of ``values`` of operators, [C, L] or [L], in every stage, [T]."""
        return np.asarray(np.maximum.reduceat(self._flat(values), self._begin_T), dtype=np.float64)

    def table(self, values_T: Floats, empty: float = 0.0) -> Floats:
        """Arrange values of stages by cut, [C, S, ...]; ``empty`` after the last stage."""
        table = np.full((len(self.first_C), int(self.count_C.max()), *values_T.shape[1:]), empty)
        table[self.cut_T, self.place_T] = values_T
        return table

    def by_length(self) -> Iterator[tuple[Ints, Ints, NDArray[np.bool_]]]:
        """Yield stages of similar length together.

        They are given by their indices, by the indices of their operators among all C x L, left-aligned, and by a mask
        of the operators that exist.
        """
        length = self.end_T - self.start_T
        group = np.ceil(np.log2(length))
        for one in np.unique(group):
            stages = np.flatnonzero(group == one)
            place = np.arange(int(length[stages].max()))
            operators = np.minimum(self.start_T[stages, None] + place, self.operators - 1)
            yield stages, self.cut_T[stages, None] * self.operators + operators, place < length[stages, None]

    @property
    def _begin_T(self) -> Ints:
        return self.cut_T * self.operators + self.start_T

    def _flat(self, values: Floats) -> Floats:
        return np.broadcast_to(values, (len(self.first_C), self.operators)).reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Seconds, memory and gradient buckets of every stage for one segment.

    ``forward_CL``, ``backward_CL``: seconds of every operator with its waits for the host. ``hiding_T``: seconds of the
    backward pass that can hide ``buckets`` [T, B]. ``dense_T`` to ``beyond_T``: as in ``Held``.
    """

    cuts: StageCuts
    forward_CL: Floats
    backward_CL: Floats
    forward_T: Floats
    backward_T: Floats
    hiding_T: Floats
    buckets: Messages
    dense_T: Floats
    tables_T: Floats
    rows_T: Floats
    kept_T: Floats
    beyond_T: Floats


def stage_starts(context: GraphContext, forward_L: Floats, backward_L: Floats, parts: int) -> tuple[int, ...]:
    """Return the first operator of every stage, such that the slowest is fastest.

    No operator runs faster than its launch.
    """
    host = context.profile.operator_host_s
    return balanced_cuts(np.maximum(forward_L, host) + np.maximum(backward_L, host), parts)


def stage_costs(
    context: GraphContext, forward_CL: Floats, backward_CL: Floats, sizes_CL: Floats, parts_C: Sequence[int]
) -> StageCosts:
    """Cut operators with the given device seconds into ``parts_C`` stages, and return the costs of the stages.

    ``sizes_CL``: exchanged bytes of gradients.
    """
    starts = [stage_starts(context, *one) for one in zip(forward_CL, backward_CL, parts_C, strict=True)]
    layers, cuts = context.layers, StageCuts.at(starts, forward_CL.shape[1])
    # Hosts and exchanges of stages do not wait for each other.
    forward, backward, hiding, buckets = _paced(context, cuts, forward_CL, backward_CL, sizes_CL)
    everything = layers.per_operator("parameters")
    table = np.array([context.sparse(operator) for operator in layers.distinct])[layers.kind_of_L]
    uncut = whole_footprint(context.model)
    kept = cuts.summed(uncut.kept_L)
    # Counts of elements are whole numbers, so differences of running sums are exact.
    running = np.cumsum(uncut.kept_L)
    before = running[cuts.start_T] - uncut.kept_L[cuts.start_T]
    return StageCosts(
        cuts=cuts,
        forward_CL=forward,
        backward_CL=backward,
        forward_T=cuts.summed(forward),
        backward_T=cuts.summed(backward),
        hiding_T=hiding,
        buckets=buckets,
        dense_T=cuts.summed(np.where(table, 0.0, everything)),
        tables_T=cuts.summed(np.where(table, everything, 0.0)),
        rows_T=cuts.summed(np.where(table, sizes_CL / GRADIENT_BYTES, 0.0)),
        kept_T=kept,
        beyond_T=np.maximum(np.maximum(cuts.largest(running + uncut.working_L) - before, 0.0) - kept, 0.0),
    )


def _paced(
    context: GraphContext, cuts: StageCuts, forward_CL: Floats, backward_CL: Floats, sizes_CL: Floats
) -> tuple[Floats, Floats, Floats, Messages]:
    """Return the seconds of operators with waits for the host of their stage, and the stages' passes and buckets."""
    launched_L = np.where(context.layers.is_kind(Kind.VIEW), 0.0, 1.0)
    host_T = cuts.summed(launched_L * context.directions) * context.profile.operator_host_s
    forward, backward = np.empty(forward_CL.size), np.empty(backward_CL.size)
    hiding, filled = np.empty(len(host_T)), []
    for stages, at, valid in cuts.by_length():
        sizes, kernels, gradients = (
            np.where(valid, one.reshape(-1)[at], 0.0) for one in (sizes_CL, forward_CL, backward_CL)
        )
        launched = np.where(valid, launched_L[at % cuts.operators], 0.0)
        ahead, backward_s = context.paced(kernels, gradients, host_T[stages], launched)
        forward[at[valid]], backward[at[valid]] = ahead[valid], backward_s[valid]
        hiding[stages] = added(backward_s)
        filled.append((stages, fill(Filling.of(context.profile), sizes, backward_s)))
    most = max(messages.bytes_NB.shape[1] for _, messages in filled)
    size, ready = np.zeros((len(hiding), most)), np.zeros((len(hiding), most))
    for stages, messages in filled:
        count = messages.bytes_NB.shape[1]
        size[stages, :count], ready[stages, :count] = messages.bytes_NB, messages.ready_NB
    shape = forward_CL.shape
    return forward.reshape(shape), backward.reshape(shape), hiding, Messages(bytes_NB=size, ready_NB=ready)


PRECISION = 1e-9
"""Relative accuracy of the longest run."""

ROUNDING = 1e-12
"""Share by which a run may exceed a bound: sums of seconds are rounded."""


def balanced_cuts(seconds_L: Floats, parts: int) -> tuple[int, ...]:
    """Cut operators into runs with the shortest possible longest run, and return the first operator of each.

    The number of runs is ``parts``, or the number of operators where this is smaller. Bisection over the longest run:
    each trial fills runs greedily and moves its bound to the nearest value at which another trial would differ. Where
    fewer runs suffice, the runs with most operators are divided in two.
    """
    total = [0.0, *map(float, np.cumsum(seconds_L))]
    low = max(float(seconds_L.max()), total[-1] / parts)
    high = min(low + float(seconds_L.max()), total[-1])  # every run but the last fills at least ``low``
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        starts = _filled(total, middle, parts)
        if len(starts) <= parts:
            high = max(total[end] - total[begin] for begin, end in pairwise([*starts, len(seconds_L)]))
        else:
            low = max(low, min(total[end + 1] - total[begin] for begin, end in pairwise(starts)))
    starts = _filled(total, high, parts)
    while len(starts) < min(parts, len(seconds_L)):
        ends = [*starts[1:], len(seconds_L)]
        begin, end = max(zip(starts, ends, strict=True), key=lambda run: run[1] - run[0])
        starts = sorted([*starts, (begin + end) // 2])
    return tuple(starts)


def _filled(total: Sequence[float], longest_s: float, parts: int) -> list[int]:
    """Fill runs one after the other and return the first operator of each; stop above ``parts`` runs."""
    begin = 0
    starts: list[int] = []
    while begin < len(total) - 1 and len(starts) <= parts:
        starts.append(begin)
        end = bisect_right(total, total[begin] + longest_s * (1 + ROUNDING)) - 1
        begin = max(end, begin + 1)
    return starts
