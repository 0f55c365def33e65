"""Costs of all distinct cuts of the operators into stages, at once.

Shapes: C cuts of at most S stages; T stages of all cuts, in order; L operators; B gradient buckets.
"""

from collections.abc import Iterator
from dataclasses import dataclass

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
    def at(first_CL: NDArray[np.bool_]) -> "StageCuts":
        """Return the cuts whose stages begin at the marked operators."""
        cut, start = np.nonzero(first_CL)
        counts, operators = np.count_nonzero(first_CL, axis=1), first_CL.shape[1]
        first = np.cumsum(counts) - counts
        place = np.arange(len(cut)) - first[cut]
        following = np.append(start[1:], operators)
        return StageCuts(
            operators=operators,
            first_C=first,
            cut_T=cut,
            place_T=place,
            start_T=start,
            end_T=np.where(place == counts[cut] - 1, operators, following),
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


def stage_starts(context: GraphContext, forward_CL: Floats, backward_CL: Floats, parts_C: Floats) -> NDArray[np.bool_]:
    """Mark the first operator of every stage, such that the slowest is fastest.

    No operator runs faster than its launch.
    """
    host = context.profile.operator_host_s
    return balanced_cuts(np.maximum(forward_CL, host) + np.maximum(backward_CL, host), parts_C)


def stage_costs(
    context: GraphContext, forward_CL: Floats, backward_CL: Floats, sizes_CL: Floats, parts_C: Floats
) -> StageCosts:
    """Cut operators with the given device seconds into ``parts_C`` stages, and return the costs of the stages.

    ``sizes_CL``: exchanged bytes of gradients.
    """
    layers, cuts = context.layers, StageCuts.at(stage_starts(context, forward_CL, backward_CL, parts_C))
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


def balanced_cuts(seconds_CL: Floats, parts_C: Floats) -> NDArray[np.bool_]:
    """Cut operators into runs with the shortest possible longest run, and mark the first operator of each, [C, L].

    The number of runs is ``parts_C``, or the number of operators where this is smaller. Bisection over the longest run:
    each trial fills runs greedily and moves its bound to the nearest value at which another trial would differ. Where
    fewer runs suffice, the runs with most operators are divided in two.
    """
    total = np.cumsum(np.pad(seconds_CL, ((0, 0), (1, 0))), axis=1)
    largest = seconds_CL.max(axis=1)
    low = np.maximum(largest, total[:, -1] / parts_C)
    high = np.minimum(low + largest, total[:, -1])  # every run but the last fills at least ``low``
    while (rows := np.flatnonzero(high - low > PRECISION * high)).size:
        starts, fits = _filled(total[rows], (low[rows] + high[rows]) / 2, parts_C[rows])
        begin, end = starts[:, :-1], starts[:, 1:]
        last = seconds_CL.shape[1]
        here = np.arange(len(rows))[:, None]
        run_s = total[rows][here, end] - total[rows][here, begin]
        longer_s = total[rows][here, np.minimum(end + 1, last)] - total[rows][here, begin]
        shortest_s = np.where(end < last, longer_s, np.inf).min(axis=1)
        high[rows] = np.where(fits, run_s.max(axis=1), high[rows])
        low[rows] = np.where(fits, low[rows], np.maximum(low[rows], shortest_s))
    starts, _ = _filled(total, high, parts_C)
    first = np.zeros((len(total), total.shape[1]), dtype=bool)
    np.put_along_axis(first, starts, True, axis=1)
    first = first[:, :-1]
    for row in np.flatnonzero(np.count_nonzero(first, axis=1) < np.minimum(parts_C, first.shape[1])):
        _divide(first[row], int(parts_C[row]))
    return first


def _divide(first_L: NDArray[np.bool_], parts: int) -> None:
    """Divide the runs with most operators in two, until there are ``parts`` or one of every operator."""
    while np.count_nonzero(first_L) < min(parts, len(first_L)):
        ends = np.append(np.flatnonzero(first_L), len(first_L))
        longest = int(np.argmax(np.diff(ends)))
        first_L[(ends[longest] + ends[longest + 1]) // 2] = True


def _filled(total_CL: Floats, longest_C: Floats, parts_C: Floats) -> tuple[Ints, NDArray[np.bool_]]:
    """Fill runs one after the other, and check whether ``parts_C`` runs suffice.

    Returns the first operators of at most one run more than ``parts_C``, padded with the number of operators.
    """
    last, bound_C = total_CL.shape[1] - 1, longest_C * (1 + ROUNDING)
    starts = [np.zeros(len(total_CL), dtype=np.int64)]
    while (starts[-1] < last).any():
        begin, number = starts[-1], len(starts)
        reached = total_CL <= (np.take_along_axis(total_CL, begin[:, None], axis=1)[:, 0] + bound_C)[:, None]
        end = np.minimum(np.maximum(np.count_nonzero(reached, axis=1) - 1, begin + 1), last)
        starts.append(np.where(number <= parts_C, end, last))
    table = np.stack(starts, axis=1)
    return table, np.count_nonzero(table < last, axis=1) <= parts_C
