"""Exact search for the best buckets and fusions, by dynamic programming over the ends of buckets.

Operators are visited in the order of the backward pass. A bucket sends nothing before its last operator, so joining
kernels inside it only saves time. A bucket that ends between two fusable operators either separates them, or is sent at
the end of their common kernel, which has all fusable operators after them or is cut earlier. A plan is therefore given
by the ends of its buckets and of the kernels that they wait for.
Two numbers describe a beginning of the pass: the time when computation reaches its end (p) and the time when the wire
is free (q). Of two beginnings with the same end, one with both numbers no larger leads to an equal or shorter step,
also where messages slow computation. Only undominated beginnings are kept, so the search simulates no plan from its
start and loses no optimal one.
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
"""Beginnings kept per place; further ones differ by less than the clock of any profiler."""
LATER_CUTS = 8
"""Operators after the end of a bucket at which the awaited kernel may be cut."""


@dataclass(slots=True)
class _Labels:
    """Beginnings, one entry each.

    ``reached`` (p), ``free`` (q), the ``place`` at the end of its last bucket, the place up to which computation is
    ``done`` (later than ``place`` where the bucket waits for the end of a kernel), and the number of the beginning
    ``before`` that bucket.
    """

    reached: Floats
    free: Floats
    place: Integers
    done: Integers
    before: Integers

    def grown(self, reached: Floats, free: Floats, place: int, done: int, before: Integers) -> "_Labels":
        """Return the beginnings, extended by those of one more place."""
        return _Labels(
            reached=np.concatenate([self.reached, reached]),
            free=np.concatenate([self.free, free]),
            place=np.concatenate([self.place, np.full(len(reached), place, dtype=np.int64)]),
            done=np.concatenate([self.done, np.full(len(reached), done, dtype=np.int64)]),
            before=np.concatenate([self.before, before]),
        )


def best_buckets(step: RankStep, *, fuse: bool = True, cut: bool = True) -> StepPlan:
    """Return the plan with the shortest step, with one pass and overlap.

    ``fuse``: whether operators may be fused; ``cut``: whether buckets may be cut into pieces.
    """
    small, members = coarse(step)
    return spread(_search(small, fuse=fuse, cut=cut), members)


def _search(step: RankStep, *, fuse: bool, cut: bool) -> StepPlan:
    ops = step.ops
    count = len(ops)
    # Place j: the backward pass of the last j operators is done. A bucket may end after any of them with a gradient.
    work = np.zeros(count + 1)
    for place, number in enumerate(range(count - 1, -1, -1)):
        work[place + 1] = work[place] + ops[number].backward_s
    size = np.concatenate([[0.0], np.cumsum([ops[number].gradient_bytes for number in range(count - 1, -1, -1)])])
    saved, whole_saved = np.zeros(count + 1), 0.0
    lost = np.zeros(count + 1)
    if fuse:
        # saved[j]: by fusing all pairs among the last j operators; the pair across place j is lost where a bucket ends.
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
        # The fusion across this place is cut, or the bucket waits for the end of its kernel, which may be cut as well.
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
    # After the last gradient, the remaining computation runs during the last bucket.
    complete = np.flatnonzero(size[labels.place] == size[-1])
    start = labels.done[complete]
    rest = work[count] - work[start] - (saved[count] - saved[start] - across[start])
    end = np.maximum(
        _advance(labels.reached[complete], rest, labels.free[complete], step.slowdown), labels.free[complete]
    )
    best = complete[np.lexsort((labels.reached[complete], end))[0]]
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
    """Return, for every place, the end of the kernel across it, or the place itself without one."""
    ends = list(range(count + 1))
    for place in range(count - 1, 0, -1):
        if fuse and ops[count - place].fusable:
            ends[place] = ends[place + 1]
    return ends


def _across(ops: tuple[Op, ...], count: int, start: int, fuse: bool) -> float:
    """Return the backward saving of fusing the pair across the place ``start``, which a bucket's end removes."""
    if not fuse or not 0 < start < count:
        return 0.0
    return ops[count - start].fused_backward_s


def _unbeaten(reached: Floats, free: Floats) -> Integers:
    """Return the undominated beginnings, thinned where there are too many."""
    order = np.lexsort((free, reached))
    least = np.minimum.accumulate(free[order])
    fresh = np.concatenate([[True], free[order][1:] < least[:-1] - 1e-12])
    kept: Integers = order[fresh]
    if len(kept) > MOST_LABELS:
        kept = kept[np.linspace(0, len(kept) - 1, MOST_LABELS).round().astype(np.int64)]
    return kept


def _plan(step: RankStep, places: list[int], cuts: Set[int], *, fuse: bool, cut: bool) -> StepPlan:
    """Return the plan whose buckets end at ``places`` (the first is 0); no kernel crosses ``cuts``."""
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
    """Return the operators to fuse with their predecessor: all except those where a kernel is cut."""
    count = len(step.ops)
    broken = {count - place for place in places if 0 < place < count}
    return frozenset(number for number in range(1, count) if step.ops[number].fusable and number not in broken)
