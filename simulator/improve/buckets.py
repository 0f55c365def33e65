"""The best buckets and fusions together, exactly: dynamic programming over where buckets end.

Walk the operators in the order of the backward pass. Within a bucket nothing is sent before its last operator, so
joining kernels there only saves time; a bucket cannot end inside a kernel. So a plan is where its buckets end, and a
fusion that an end cuts is lost. Two numbers say all about a beginning of the pass: when computation has reached its end
(p) and when the wire is free (q). Of two beginnings that end alike, one with both numbers no larger can only lead to a
step as short or shorter, also where messages slow computation down. So only beginnings that no other beats are kept:
the search simulates no plan from its start, and loses none that is best.
"""

import math
from dataclasses import dataclass

import numpy as np

from forerun.simulator.improve.step import Op, Plan, Step, advance, coarse, spread

MOST_LABELS = 64
"""Beginnings that are kept per place; more differ by less than the clock of any profiler."""


@dataclass(slots=True)
class _Label:
    """A beginning: ``reached`` (p), ``free`` (q), where its last bucket began, and the beginning before that."""

    reached: float
    free: float
    before: "_Label | None"
    place: int


def best_buckets(step: Step, *, fuse: bool = True, cut: bool = True) -> Plan:
    """Return the plan with the shortest step of all with one pass and overlap.

    ``fuse``: whether operators may be fused; ``cut``: whether buckets may be cut into pieces.
    """
    small, members = coarse(step)
    return spread(_search(small, fuse=fuse, cut=cut), members)


def _search(step: Step, *, fuse: bool, cut: bool) -> Plan:
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
        return Plan(buckets=(), fused=_fused(step, [0, count]) if fuse else frozenset())
    labels: dict[int, list[_Label]] = {0: [_Label(begin, 0.0, None, 0)]}
    for place in range(1, count + 1):
        starts = [start for start in labels if size[start] < size[place]]
        if not starts:
            continue
        sizes = np.array([size[place] - size[start] for start in starts])
        pieces = step.wire.best_pieces(sizes) if cut else np.ones(len(sizes), dtype=np.int64)
        wires = step.wire.seconds(sizes, pieces)
        shift = float(lost[place])
        fresh: list[_Label] = []
        for start, wire_s in zip(starts, wires.tolist(), strict=True):
            seconds = float(work[place] - work[start] - (saved[place] - saved[start] - _across(ops, count, start, fuse)))
            for label in labels[start]:
                reached = advance(label.reached, seconds, label.free, step.slowdown) + shift
                free = max(label.free + shift * (label.free > 0), reached) + wire_s
                fresh.append(_Label(reached, free, label, place))
        labels[place] = _unbeaten(fresh)
    best: tuple[float, float, _Label] | None = None
    for place in [place for place in labels if size[place] == size[-1]]:
        # Behind the last gradient, what is left is computed while the last bucket travels.
        rest = float(work[count] - work[place] - (saved[count] - saved[place] - _across(ops, count, place, fuse)))
        for label in labels[place]:
            end = max(advance(label.reached, rest, label.free, step.slowdown), label.free)
            if best is None or (end, label.reached) < best[:2]:
                best = (end, label.reached, label)
    assert best is not None
    return _plan(step, best[2], fuse=fuse, cut=cut)


def _across(ops: tuple[Op, ...], count: int, start: int, fuse: bool) -> float:
    """Return what fusing the pair across the place ``start`` would save backward: a bucket ends there, so nothing."""
    if not fuse or not 0 < start < count:
        return 0.0
    return ops[count - start].fused_backward_s


def _unbeaten(labels: list[_Label]) -> list[_Label]:
    """Return the labels that no other beats in both numbers, thinned where there are too many."""
    labels.sort(key=lambda label: (label.reached, label.free))
    kept: list[_Label] = []
    for label in labels:
        if not kept or label.free < kept[-1].free - 1e-12:
            kept.append(label)
    if len(kept) > MOST_LABELS:
        kept = [kept[round(place)] for place in np.linspace(0, len(kept) - 1, MOST_LABELS)]
    return kept


def _plan(step: Step, label: _Label, *, fuse: bool, cut: bool) -> Plan:
    """Return the plan that a label stands for."""
    count = len(step.ops)
    places: list[int] = []
    at: _Label | None = label
    while at is not None:
        places.append(at.place)
        at = at.before
    places.reverse()
    buckets = []
    for start, end in zip(places[:-1], places[1:], strict=True):
        numbers = range(count - 1 - start, count - 1 - end, -1)
        buckets.append(tuple(number for number in numbers if step.ops[number].gradient_bytes > 0))
    pieces: tuple[int, ...] = ()
    if cut:
        sizes = np.array([math.fsum(step.ops[number].gradient_bytes for number in bucket) for bucket in buckets])
        pieces = tuple(step.wire.best_pieces(sizes).tolist())
    return Plan(buckets=tuple(buckets), pieces=pieces, fused=_fused(step, places) if fuse else frozenset())


def _fused(step: Step, places: list[int]) -> frozenset[int]:
    """Return the operators to fuse with the one before them: all but those at whose place a bucket ends."""
    count = len(step.ops)
    broken = {count - place for place in places if 0 < place < count}
    return frozenset(
        number for number in range(1, count) if step.ops[number].fusable and number not in broken
    )
