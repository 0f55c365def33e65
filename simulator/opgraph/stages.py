"""Pipelines of whole layers: where to cut, and when the last device of a step is done.

GPipe (arXiv 1811.06965): all microbatches forward, then all backward. Stages and the links behind them work like the
machines of a flow shop with equal jobs, whose last job leaves machine k after the sum of all times up to k and, for
every further job, the longest of them.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from forerun.simulator.layouts.price import crossings, sent_s
from forerun.simulator.opgraph.candidates import Candidates
from forerun.simulator.opgraph.compute import Local
from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.gradients import exchange_s, exchanged_bytes
from forerun.simulator.opgraph.groups import replica_stride
from forerun.simulator.opgraph.layers import Floats
from forerun.simulator.opgraph.memory import kept_elements
from forerun.simulator.opgraph.messages import rendezvous_s, straggler_wait_s
from forerun.spaces.clusters.cluster import Level
from forerun.spaces.opgraph import GraphModel, Kind
from forerun.spaces.opgraph.split import Mode, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Per row, zero where there is no pipeline: seconds on the stage that ends last, and the most that any stage holds.

    ``forward_s``, ``backward_s``: all its segments; ``bubble_s``: its waiting while others fill and drain the pipeline;
    ``p2p_s``: what transfers between stages add to that; ``exchange_s``, ``exposed_s``: its gradients' exchange, and
    what of it is not hidden; ``straggler_wait_s``, ``update_s`` as in ``Gradients``. ``parameters_N`` (without tables),
    ``tables_N`` and ``kept_N`` (elements per sample).
    """

    forward_s: Floats
    backward_s: Floats
    bubble_s: Floats
    p2p_s: Floats
    exchange_s: Floats
    exposed_s: Floats
    straggler_wait_s: Floats
    update_s: Floats
    parameters_N: Floats
    tables_N: Floats
    kept_N: Floats


def pipeline_stages(context: GraphContext, c: Candidates) -> Stages:
    """Return the stages of every pipeline row, cut as ``stage_starts`` says."""
    names = [field.name for field in fields(Stages)]
    columns = {name: np.zeros(len(c)) for name in names}
    rows = np.flatnonzero(c.is_mode(Mode.PIPELINE))
    if rows.size:
        sizes = exchanged_bytes(context, c)
        passes = _passes(context, c.local_N[rows])
        for forward_L, backward_L, row in zip(*passes, rows, strict=True):
            found = _row(context, c, int(row), forward_L, backward_L, sizes[row])
            for name, value in zip(names, found, strict=True):
                columns[name][row] = value
    return Stages(**columns)


def stage_starts(context: GraphContext, segment: float, parts: int) -> tuple[int, ...]:
    """Return the first operator of every stage of a pipeline whose segments have so many samples: cut so that the
    slowest is as fast as can be."""
    forward, backward = _passes(context, np.array([segment]))
    host = context.profile.operator_host_s
    return balanced_cuts(np.maximum(forward[0], host) + np.maximum(backward[0], host), parts)


def _passes(context: GraphContext, batch_K: Floats) -> tuple[Floats, Floats]:
    """Device seconds of every operator forward and backward, [K, L]."""
    times, kinds = context.times(Local.whole(batch_K)), context.layers.kind_of_L
    return times.forward_KU[:, kinds], times.backward_KU[:, kinds]


def _row(
    context: GraphContext, c: Candidates, row: int, forward_L: Floats, backward_L: Floats, sizes_L: Floats
) -> tuple[float, ...]:
    """Return the values of ``Stages`` for one row, in the order of its fields."""
    layers, profile, split = context.layers, context.profile, c.splits[row]
    segment, count = float(c.local_N[row]), float(c.segments_N[row])
    # Stages are cut where sums over operators of max(f, host) + max(b, host) balance: none runs faster than the host
    # launches it.
    host = profile.operator_host_s
    starts = balanced_cuts(np.maximum(forward_L, host) + np.maximum(backward_L, host), split.parts)
    stage_of_L = np.searchsorted(starts, np.arange(len(forward_L)), side="right") - 1

    def per_stage(values: Floats) -> Floats:
        return np.add.reduceat(values, starts)

    # [stages, L]: 1.0 where a stage has an operator. Hosts and exchanges of stages do not wait for each other.
    own = np.where(stage_of_L == np.arange(len(starts))[:, None], 1.0, 0.0)
    host_s = per_stage(np.where(layers.is_kind(Kind.VIEW), 0.0, context.directions)) * host
    forward_L, backward_L = (one.sum(axis=0) for one in context.paced(own * forward_L, own * backward_L, host_s, own))
    forward, backward = per_stage(forward_L), per_stage(backward_L)
    sends = (context, starts, forward_L, backward_L, segment, split)
    there = _sends(*sends, "there")
    back = [_Sent(0.0, ())] * len(starts) if context.inference else _sends(*sends, "back")
    ranks, spacing = np.full(len(starts), c.replicas_N[row]), np.full(len(starts), c.parts_N[row])
    levels = context.cluster.levels
    stride = np.array([replica_stride(levels, split.replicas, split.parts, stage) for stage in range(len(starts))])
    whole, shown = exchange_s(context, own * sizes_L, own * backward_L, ranks, stride)
    several = (ranks > 1) & (not context.inference)
    rendezvous = np.where(several, rendezvous_s(profile, context.nodes(ranks * spacing)), 0.0)
    whole, shown = np.where(several, whole, 0.0) + rendezvous, np.where(several, shown, 0.0) + rendezvous
    everything, table = layers.per_operator("parameters"), layers.is_kind(Kind.EMBEDDING)
    dense, tables = per_stage(np.where(table, 0.0, everything)), per_stage(np.where(table, everything, 0.0))
    straggler_wait = straggler_wait_s(profile, count * (forward + backward), float(c.devices_N[row]))
    update = context.update_s(dense)
    # The step ends with the stage whose last pass, exposed gradients, wait and update end last. The same pipeline with
    # free sends says what of that stage's time is bubble (free - passes) and what sends cost (done - free).
    done = _drained(forward, backward, there, back, count)
    last = int(np.argmax(done + shown + straggler_wait + update))
    free = _drained(forward, backward, [one.free() for one in there], [one.free() for one in back], count)[last]
    busy = (float(count * forward[last]), float(count * backward[last]))
    return (
        *busy,
        float(free - sum(busy)),
        float(done[last] - free),
        *(float(values[last]) for values in (whole, shown, straggler_wait, update)),
        *(float(values.max()) for values in (dense, tables, per_stage(kept_elements(context)))),
    )


@dataclass(frozen=True, slots=True)
class _Sent:
    """What one stage sends for one segment: seconds of all; ``to`` other stages, with the seconds from its end until
    each can begin (less than none where that computes something else first), and the same were sending free."""

    all_s: float
    to: tuple[tuple[int, float, float], ...]

    def free(self) -> "_Sent":
        return _Sent(0.0, tuple((reader, free_s, free_s) for reader, _, free_s in self.to))


def _drained(forward: Floats, backward: Floats, there: Sequence[_Sent], back: Sequence[_Sent], count: float) -> Floats:
    """Seconds until every stage has done its last backward pass."""
    stages = range(len(forward))
    begin = np.zeros(len(forward))
    begin = _left(forward, there, stages, begin, count)
    return _left(backward, back, stages[::-1], begin, count)


def _left(passes: Floats, sent: Sequence[_Sent], order: Sequence[int], begin: Floats, count: float) -> Floats:
    """Seconds until every stage has done ``count`` passes, where none begins before ``begin``."""
    # first: when a stage's first pass begins, the longest path through the stages before it. longest: the slowest pass
    # or send up to it, at whose pace further segments arrive. So the last pass ends at first + pass + (count - 1)
    # longest, and no earlier than a stage takes that never waits.
    first, longest = begin.copy(), passes.copy()
    for stage in order:
        one, each = sent[stage], max(longest[stage], sent[stage].all_s)
        done = first[stage] + passes[stage]
        for reader, behind_s, _ in one.to:
            first[reader] = max(first[reader], done + behind_s)
            longest[reader] = max(longest[reader], each)
    return np.asarray(np.maximum(first + passes + (count - 1.0) * longest, begin + count * passes))


def _sends(
    context: GraphContext,
    starts: tuple[int, ...],
    forward_L: Floats,
    backward_L: Floats,
    segment: float,
    split: Split,
    way: str,
) -> list[_Sent]:
    """Return what every stage sends for one segment: each output to every other stage that reads it, or its gradient
    ``back``; a stage sends one after the other, as they are made."""
    seconds_L = forward_L if way == "there" else backward_L[::-1]
    ready = np.cumsum(seconds_L)
    ends = (*starts[1:], len(forward_L))
    count = len(ready)
    begins = starts if way == "there" else tuple(count - end for end in ends)
    took_s, found = _crossing_s(context, starts, segment, split, way), []
    for stage, (begin, end) in enumerate(zip(starts, ends, strict=True)):
        first, last = (begin, end - 1) if way == "there" else (count - end, count - 1 - begin)
        started = ready[first] - seconds_L[first]
        now, total, readers = 0.0, 0.0, dict[int, tuple[float, float]]()
        own = float(ready[last] - started)
        for place, reader, read, took in took_s.get(stage, ()):
            now = max(now, float(ready[place] - started)) + took
            total += took
            before = float(ready[read] - seconds_L[read] - (ready[begins[reader]] - seconds_L[begins[reader]]))
            behind, free = now - own - before, float(ready[place] - started) - own - before
            known = readers.get(reader, (behind, free))
            readers[reader] = (max(behind, known[0]), max(free, known[1]))
        found.append(_Sent(total, tuple((reader, *waits) for reader, waits in readers.items())))
    return found


def _crossing_s(
    context: GraphContext, starts: tuple[int, ...], segment: float, split: Split, way: str
) -> dict[int, list[tuple[int, int, int, float]]]:
    """Return what ``_crossing`` does, with the seconds that it travels in the slowest replica in place of its size."""
    sent = [
        (stage, place, reader, read, segment * elements * context.width)
        for stage, each in _crossing(context.model, starts, way).items()
        for place, reader, read, elements in each
    ]
    if not sent:
        return {}
    levels = context.cluster.levels
    ways = [_ways(levels, split.replicas, split.parts, stage, reader) for stage, _, reader, _, _ in sent]
    counts = [len(each) for each in ways]
    distance, share = np.array([one for each in ways for one in each], dtype=np.float64).T
    seconds = sent_s(context.cluster, np.repeat([size for *_, size in sent], counts), distance, share)
    slowest = np.maximum.reduceat(seconds, np.cumsum([0, *counts[:-1]]))
    found: dict[int, list[tuple[int, int, int, float]]] = {}
    for (stage, place, reader, read, _), took in zip(sent, slowest.tolist(), strict=True):
        found.setdefault(stage, []).append((place, reader, read, took))
    return found


@lru_cache(maxsize=1024)
def _crossing(
    model: GraphModel, starts: tuple[int, ...], way: str
) -> Mapping[int, tuple[tuple[int, int, int, float], ...]]:
    """Return by stage what it sends to another: the place of the operator that makes it in the order of the pass, the
    stage that reads it, the place of the first operator there that does, its elements per sample. Gradients of readers
    in one stage are added up before they go back."""
    places = {operator.name: place for place, operator in enumerate(model.operators)}
    last = len(places) - 1
    found: dict[int, list[tuple[int, int, int, float]]] = {}
    first: dict[tuple[str, int], int] = {}
    for place, operator in enumerate(model.operators):
        reader = bisect_right(starts, place) - 1
        for name in operator.inputs:
            maker = bisect_right(starts, places[name]) - 1
            if maker != reader:
                first.setdefault((name, reader), place)
    for (name, reader), place in first.items():
        maker, size = bisect_right(starts, places[name]) - 1, float(model.operators[places[name]].output_elements)
        if way == "there":
            found.setdefault(maker, []).append((places[name], reader, place, size))
        else:
            found.setdefault(reader, []).append((last - place, maker, last - places[name], size))
    return {stage: tuple(sorted(sent, key=lambda one: one[0])) for stage, sent in found.items()}


@lru_cache(maxsize=4096)
def _ways(
    levels: tuple[Level, ...], replicas: int, parts: int, source: int, target: int
) -> frozenset[tuple[int, float]]:
    """Distances between one stage and another in all replicas, each with the share of its link that is in use."""
    pairs = [(replica * parts + source, replica * parts + target) for replica in range(replicas)]
    return frozenset(crossings(levels, pairs))


PRECISION = 1e-9
"""Share of the longest run to which the cuts are found."""


def balanced_cuts(seconds_L: Floats, parts: int) -> tuple[int, ...]:
    """Return the first operator of each of ``parts`` runs (or as many as there are operators) whose longest is as short
    as can be.

    Bisection over the longest run; each trial fills runs greedily. Where fewer runs do, the fullest are cut in two.
    """
    total = [0.0, *map(float, np.cumsum(seconds_L))]
    low, high = float(seconds_L.max()), total[-1]
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        if len(_filled(total, middle, parts)) <= parts:
            high = middle
        else:
            low = middle
    starts = [*_filled(total, high * (1 + 1e-12), parts)]
    while len(starts) < min(parts, len(seconds_L)):
        ends = [*starts[1:], len(seconds_L)]
        begin, end = max(zip(starts, ends, strict=True), key=lambda run: run[1] - run[0])
        starts = sorted([*starts, (begin + end) // 2])
    return tuple(starts)


def _filled(total: Sequence[float], longest_s: float, parts: int) -> tuple[int, ...]:
    """Return where runs begin that are filled up one after the other; gives up when there are more than ``parts``."""
    begin = 0
    starts: list[int] = []
    while begin < len(total) - 1 and len(starts) <= parts:
        starts.append(begin)
        end = bisect_right(total, total[begin] + longest_s) - 1
        begin = max(end, begin + 1)
    return tuple(starts)
