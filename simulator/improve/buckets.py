"""The best buckets and fusions together, exactly: dynamic programming over where buckets end.

Walk the operators in the order of the backward pass. Within a bucket nothing is sent before its last operator, so
joining kernels there only saves time. A bucket that ends between two operators which can be fused either cuts them
apart, or is sent when the kernel of both has ended: that of all which can be fused behind them, or one that is cut
sooner. So a plan is where its buckets end, and where the kernels that they wait for do.
Two numbers say all about a beginning of the pass: when computation has reached its end (p) and when the wire is free
(q). Of two beginnings that end alike, one with both numbers no larger can only lead to a step as short or shorter, also
where messages slow computation down. So only beginnings that no other beats are kept: the search simulates no plan from
its start, and loses none that is best.
"""

import itertools
import math
from collections.abc import Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.improve.step import Op, RankStep, StepPlan, coarse, spread

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MOST_LABELS = 64
"""Beginnings that are kept per place; more differ by less than the clock of any profiler."""
LATER_CUTS = 8
"""Operators behind the end of a bucket after which the kernel that it waits for may be cut."""


@dataclass(slots=True)
class _Labels:
    """Beginnings, one entry each: ``reached`` (p), ``free`` (q), the ``place`` at which its last bucket ends, the place
    that computation has ``done`` (further, where that bucket waits for the end of a kernel), and the number of the
    beginning ``before`` that bucket."""

    reached: Floats
    free: Floats
    place: Integers
    done: Integers
    before: Integers

    def grown(self, reached: Floats, free: Floats, place: int, done: int, before: Integers) -> "_Labels":
        """Return the beginnings with more of one place."""
        return _Labels(
            reached=np.concatenate([self.reached, reached]),
            free=np.concatenate([self.free, free]),
            place=np.concatenate([self.place, np.full(len(reached), place, dtype=np.int64)]),
            done=np.concatenate([self.done, np.full(len(reached), done, dtype=np.int64)]),
            before=np.concatenate([self.before, before]),
        )


def best_buckets(step: RankStep, *, fuse: bool = True, cut: bool = True) -> StepPlan:
    """Return the plan with the shortest step of all with one pass and overlap.

    ``fuse``: whether operators may be fused; ``cut``: whether buckets may be cut into pieces.
    """
    small, members = coarse(step)
    return spread(_search(small, fuse=fuse, cut=cut), members)


def _search(step: RankStep, *, fuse: bool, cut: bool) -> StepPlan:
    ops = step.ops
    count = len(ops)
    # Place j: the last j operators of the model have gone backward. A bucket may end behind any of them that sends.
    work = np.zeros(count + 1)
    for place, number in enumerate(range(count - 1, -1, -1)):
        work[place + 1] = work[place] + ops[number].backward_s
    size = np.concatenate([[0.0], np.cumsum([ops[number].gradient_bytes for number in range(count - 1, -1, -1)])])
    saved, whole_saved = np.zeros(count + 1), 0.0
    lost = np.zeros(count + 1)
    if fuse:
        # saved[j]: by fusing all pairs among the last j operators; the pair across place j is lost where it ends there.
        for place in range(1, count + 1):
            number = count - place
            after = ops[number + 1] if number + 1 < count else None
            saved[place] = saved[place - 1] + (after.fused_backward_s if after is not None else 0.0)
        for place in range(1, count):
            joined = ops[count - place]
            lost[place] = joined.fused_forward_s if joined.fusable else 0.0
        whole_saved = math.fsum(op.fused_forward_s for op in ops)
    begin = step.host_s + math.fsum(op.forward_s for op in ops) - whole_saved
    if not size[-1]:
        return StepPlan(buckets=(), fused=_fused(step, {0, count}) if fuse else frozenset())
    first: Integers = np.zeros(1, dtype=np.int64)
    labels = _Labels(reached=np.array([begin]), free=np.zeros(1), place=first, done=first, before=first - 1)
    ends = _ends(ops, count, fuse)
    across = np.array([_across(ops, count, start, fuse) for start in range(count + 1)])
    wires = np.zeros((count + 1, count + 1))
    some = np.nonzero(size[None, :] > size[:, None])
    sizes = size[some[1]] - size[some[0]]
    wires[some] = step.wire.seconds(sizes, step.wire.best_pieces(sizes) if cut else 1)
    for place in range(1, count + 1):
        known = np.flatnonzero(size[labels.place] < size[place])
        if not len(known):
            continue
        # The fusion across this place is cut, or the bucket waits for the end of its kernel, which may be cut, too.
        for end in {*range(place, min(place + LATER_CUTS, ends[place]) + 1), ends[place]}:
            open_ = known[(labels.done[known] <= end)]
            wire_s, start = wires[labels.place[open_], place], labels.done[open_]
            seconds = work[end] - work[start] - (saved[end] - saved[start] - across[start])
            seconds, shift = np.where(start == end, 0.0, seconds), np.where(start == end, 0.0, lost[end])
            before_s, free_s = labels.reached[open_], labels.free[open_]
            reached = _advance(before_s, seconds, free_s, step.slowdown) + shift + step.message_s
            free = np.maximum(free_s + shift * (free_s > 0), reached) + wire_s
            kept = _unbeaten(reached, free)
            labels = labels.grown(reached[kept], free[kept], place, end, open_[kept])
    # Behind the last gradient, what is left is computed while the last bucket travels.
    whole = np.flatnonzero(size[labels.place] == size[-1])
    start = labels.done[whole]
    rest = work[count] - work[start] - (saved[count] - saved[start] - across[start])
    end = np.maximum(_advance(labels.reached[whole], rest, labels.free[whole], step.slowdown), labels.free[whole])
    best = whole[np.lexsort((labels.reached[whole], end))[0]]
    places, cuts = [int(labels.place[best])], {count}
    while labels.before[best] >= 0:
        cuts.add(int(labels.done[best]))
        best = labels.before[best]
        places.append(int(labels.place[best]))
    return _plan(step, places[::-1], cuts, fuse=fuse, cut=cut)


def _advance(now: Floats, work_s: Floats, free: Floats, slowdown: float) -> Floats:
    """Compute ``step.advance`` for arrays."""
    done_s = np.maximum(free - now, 0.0) / slowdown
    ended: Floats = np.where(work_s <= done_s, now + work_s * slowdown, np.maximum(now, free) + work_s - done_s)
    return ended


def _ends(ops: tuple[Op, ...], count: int, fuse: bool) -> list[int]:
    """Return for every place where the kernel ends that goes across it; the place itself where none does."""
    ends = list(range(count + 1))
    for place in range(count - 1, 0, -1):
        if fuse and ops[count - place].fusable:
            ends[place] = ends[place + 1]
    return ends


def _across(ops: tuple[Op, ...], count: int, start: int, fuse: bool) -> float:
    """Return the backward saving of fusing the pair across the place ``start``: a bucket ends there, so nothing."""
    if not fuse or not 0 < start < count:
        return 0.0
    return ops[count - start].fused_backward_s


def _unbeaten(reached: Floats, free: Floats) -> Integers:
    """Return the beginnings that no other beats in both numbers, thinned where there are too many."""
    order = np.lexsort((free, reached))
    least = np.minimum.accumulate(free[order])
    fresh = np.concatenate([[True], free[order][1:] < least[:-1] - 1e-12])
    kept: Integers = order[fresh]
    if len(kept) > MOST_LABELS:
        kept = kept[np.linspace(0, len(kept) - 1, MOST_LABELS).round().astype(np.int64)]
    return kept


def _plan(step: RankStep, places: list[int], cuts: Set[int], *, fuse: bool, cut: bool) -> StepPlan:
    """Return the plan whose buckets end at some places, the first of which is 0; no kernel goes across ``cuts``."""
    count = len(step.ops)
    buckets = []
    for start, end in itertools.pairwise(places):
        numbers = range(count - 1 - start, count - 1 - end, -1)
        buckets.append(tuple(number for number in numbers if step.ops[number].gradient_bytes > 0))
    pieces: tuple[int, ...] = ()
    if cut:
        sizes = np.array([math.fsum(step.ops[number].gradient_bytes for number in bucket) for bucket in buckets])
        pieces = tuple(step.wire.best_pieces(sizes).tolist())
    return StepPlan(buckets=tuple(buckets), pieces=pieces, fused=_fused(step, cuts) if fuse else frozenset())


def _fused(step: RankStep, places: Set[int]) -> frozenset[int]:
    """Return the operators to fuse with the one before them: all but those at whose place a kernel is cut."""
    count = len(step.ops)
    broken = {count - place for place in places if 0 < place < count}
    return frozenset(number for number in range(1, count) if step.ops[number].fusable and number not in broken)
