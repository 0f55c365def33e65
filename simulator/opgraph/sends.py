"""Messages between the stages of pipelines, and the end of every stage's last pass.

Stages and the links between them behave like the machines of a flow shop with equal jobs: the last job leaves machine k
after the sum of all times up to k plus, for every further job, the longest of these times. Shapes: P pipelines of at
most S stages; M messages of all pipelines.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.layouts.price import crossings_of, sent_s
from forerun.simulator.opgraph.groups import distinct_replicas
from forerun.simulator.opgraph.layers import Floats
from forerun.spaces.clusters.cluster import Cluster, Level
from forerun.spaces.opgraph import GraphModel

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutMessages:
    """Messages of the stages of one cut for one segment in one direction, in the order of sending.

    ``stage_M`` sends ``elements_M`` per sample to ``reader_M``. Seconds from the start of a pass: ``made_M`` until the
    message is ready, ``needs_M`` until the reader needs it. ``pass_M``: seconds of the sending pass.
    """

    stage_M: Ints
    reader_M: Ints
    elements_M: Floats
    made_M: Floats
    needs_M: Floats
    pass_M: Floats


NOTHING = CutMessages(
    stage_M=np.zeros(0, dtype=np.int64),
    reader_M=np.zeros(0, dtype=np.int64),
    elements_M=np.zeros(0),
    made_M=np.zeros(0),
    needs_M=np.zeros(0),
    pass_M=np.zeros(0),
)


def cut_messages(model: GraphModel, starts: tuple[int, ...], seconds_L: Floats, *, backward: bool) -> CutMessages:
    """Return the messages for one segment between stages with first operators ``starts``.

    A forward pass sends an output to every other stage that reads it, a ``backward`` pass returns its gradient.
    ``seconds_L``: seconds of the operators in the order of the pass.
    """
    count = len(seconds_L)
    ready, ends = np.cumsum(seconds_L), (*starts[1:], count)
    begins = tuple(count - end for end in ends) if backward else starts
    lasts = tuple(count - 1 - begin for begin in starts) if backward else tuple(end - 1 for end in ends)
    started = [ready[begin] - seconds_L[begin] for begin in begins]
    rows = [
        (
            stage,
            reader,
            elements,
            ready[place] - started[stage],
            ready[read] - seconds_L[read] - started[reader],
            ready[lasts[stage]] - started[stage],
        )
        for stage, sent in crossing_outputs(model, starts, backward=backward).items()
        for place, reader, read, elements in sent
    ]
    if not rows:
        return NOTHING
    stage, reader, *numbers = zip(*rows, strict=True)
    elements, made, needs, whole = (np.array(values, dtype=np.float64) for values in numbers)
    return CutMessages(
        stage_M=np.array(stage, dtype=np.int64),
        reader_M=np.array(reader, dtype=np.int64),
        elements_M=elements,
        made_M=made,
        needs_M=needs,
        pass_M=whole,
    )


@lru_cache(maxsize=1024)
def crossing_outputs(
    model: GraphModel, starts: tuple[int, ...], *, backward: bool
) -> Mapping[int, tuple[tuple[int, int, int, float], ...]]:
    """Return the outputs that each stage sends to other stages, in the order of the pass.

    Each output has the index of its operator in that order, the reading stage, the index of the first reading operator
    of that stage, and its elements per sample. Gradients of one stage's readers are summed before they are sent.
    """
    places = {operator.name: place for place, operator in enumerate(model.operators)}
    last = len(places) - 1
    sent: dict[int, list[tuple[int, int, int, float]]] = {}
    first: dict[tuple[str, int], int] = {}
    for place, operator in enumerate(model.operators):
        reader = bisect_right(starts, place) - 1
        for name in operator.inputs:
            maker = bisect_right(starts, places[name]) - 1
            if maker != reader:
                first.setdefault((name, reader), place)
    for (name, reader), place in first.items():
        maker, size = bisect_right(starts, places[name]) - 1, float(model.operators[places[name]].output_elements)
        if backward:
            sent.setdefault(reader, []).append((last - place, maker, last - places[name], size))
        else:
            sent.setdefault(maker, []).append((places[name], reader, place, size))
    return {stage: tuple(sorted(one, key=lambda message: message[0])) for stage, one in sorted(sent.items())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sends:
    """Messages of P pipelines in one direction; ``total_PS``: seconds of all messages of a stage for one segment.

    An edge connects a stage to a reader; edges are sorted by the sending stage. ``row_E``: its pipeline. ``behind_E``:
    seconds from the end of the sending pass until the reader can start, negative where the reader computes other
    operators first. ``free_E``: the same with messages of zero duration.
    """

    total_PS: Floats
    row_E: Ints
    stage_E: Ints
    reader_E: Ints
    behind_E: Floats
    free_E: Floats

    def free(self) -> "Sends":
        """Copy the edges with messages of zero duration."""
        return Sends(
            total_PS=np.zeros_like(self.total_PS),
            row_E=self.row_E,
            stage_E=self.stage_E,
            reader_E=self.reader_E,
            behind_E=self.free_E,
            free_E=self.free_E,
        )


def sends_of(
    cluster: Cluster,
    cuts: Sequence[CutMessages],
    cut_P: Ints,
    replicas_P: Ints,
    parts_P: Ints,
    *,
    segment_P: Floats,
    width: float,
) -> Sends:
    """Return the messages of pipelines; a stage sends messages in sequence, as they become ready.

    ``cut_P``: index into ``cuts`` of each pipeline; ``segment_P``: samples of a segment; ``width``: bytes of an
    element.
    """
    counts = np.array([len(cut.stage_M) for cut in cuts])
    most, pipelines = int(parts_P.max(initial=1)), len(cut_P)
    row = np.repeat(np.arange(pipelines), counts[cut_P])
    begins = np.concatenate([[0], np.cumsum(counts)])[:-1]
    # Indices of the messages of every pipeline's cut among the messages of all cuts.
    order = np.arange(len(row)) - np.repeat(np.cumsum(counts[cut_P]) - counts[cut_P], counts[cut_P])
    place = begins[cut_P][row] + order

    def column(name: str) -> np.ndarray:
        return np.asarray(np.concatenate([getattr(cut, name) for cut in cuts])[place])

    stage, reader, made, needs, whole = (column(f"{name}_M") for name in ("stage", "reader", "made", "needs", "pass"))
    took = _took_s(cluster, replicas_P[row], parts_P[row], stage, reader, segment_P[row] * column("elements_M") * width)
    now_PS, total_PS = np.zeros((pipelines, most)), np.zeros((pipelines, most))
    end = np.zeros(len(row))
    for number in _numbers(row * most + stage):
        one = row[number], stage[number]
        end[number] = now_PS[one] = np.maximum(now_PS[one], made[number]) + took[number]
        total_PS[one] += took[number]
    edge = (row * most + stage) * most + reader
    distinct, which = np.unique(edge, return_inverse=True)
    behind, free = (np.full(len(distinct), -np.inf) for _ in range(2))
    np.maximum.at(behind, which, end - whole - needs)
    np.maximum.at(free, which, made - whole - needs)
    source = distinct // most % most
    by_stage = np.argsort(source, kind="stable")
    return Sends(
        total_PS=total_PS,
        row_E=(distinct // most // most)[by_stage],
        stage_E=source[by_stage],
        reader_E=(distinct % most)[by_stage],
        behind_E=behind[by_stage],
        free_E=free[by_stage],
    )


def _numbers(owner_M: Ints) -> list[Ints]:
    """Return the first messages of all owners, the second messages, and so on; messages of one owner are adjacent."""
    first = np.flatnonzero(np.diff(owner_M, prepend=-1))
    number = np.arange(len(owner_M)) - np.repeat(first, np.diff(np.append(first, len(owner_M))))
    return [np.flatnonzero(number == one) for one in range(int(number.max(initial=-1)) + 1)]


def _took_s(cluster: Cluster, replicas_M: Ints, parts_M: Ints, stage_M: Ints, reader_M: Ints, size_M: Floats) -> Floats:
    """Return the seconds of every message in the slowest replica."""
    if not len(size_M):
        return size_M
    span = int(parts_M.max()) + 1
    key = ((replicas_M * span + parts_M) * span + stage_M) * span + reader_M
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    edges: dict[tuple[int, int], list[tuple[int, int]]] = {}
    shapes = zip(replicas_M[first].tolist(), parts_M[first].tolist(), strict=True)
    for shape, edge in zip(shapes, zip(stage_M[first].tolist(), reader_M[first].tolist(), strict=True), strict=True):
        edges.setdefault(shape, []).append(edge)
    # Distinct keys are sorted, so keys of one shape are adjacent.
    levels = cluster.levels
    ways = [
        way
        for (replicas, parts), own in edges.items()
        for way in _ways(levels, distinct_replicas(levels, replicas, parts), parts, tuple(own))
    ]
    counts = np.array([len(each) for each in ways])
    table = np.concatenate(ways)
    begins = np.concatenate([[0], np.cumsum(counts)])[:-1]
    each = counts[which]
    starts = np.cumsum(each) - each
    way = np.repeat(begins[which] - starts, each) + np.arange(int(each.sum()))
    distance, share = table[way].T
    return np.maximum.reduceat(sent_s(cluster, np.repeat(size_M, each), distance, share), starts)


@lru_cache(maxsize=16384)
def _ways(
    levels: tuple[Level, ...], replicas: int, parts: int, edges: tuple[tuple[int, int], ...]
) -> tuple[Floats, ...]:
    """Return the distances between two stages in all replicas, each with the used share of its link.

    One table of distinct (distance, share) for each of ``edges`` (source, target).
    """
    first = parts * np.arange(replicas)
    source, target = (np.array(end)[:, None] + first for end in zip(*edges, strict=True))
    edge = np.broadcast_to(np.arange(len(edges))[:, None], source.shape).reshape(-1)
    distance, share = crossings_of(levels, source.reshape(-1), target.reshape(-1), edge)
    rows = np.unique(np.stack([edge, distance, share], axis=1), axis=0)
    return tuple(np.split(rows[:, 1:], np.searchsorted(rows[:, 0], np.arange(1, len(edges)))))


def drained_s(forward_PS: Floats, backward_PS: Floats, outputs: Sends, gradients: Sends, count_P: Floats) -> Floats:
    """Return the seconds until the end of every stage's last backward pass."""
    stages = range(forward_PS.shape[1])
    begin = _left_s(forward_PS, outputs, stages, np.zeros_like(forward_PS), count_P)
    return _left_s(backward_PS, gradients, stages[::-1], begin, count_P)


def _left_s(passes_PS: Floats, sends: Sends, order: Sequence[int], begin_PS: Floats, count_P: Floats) -> Floats:
    """Return the seconds until the end of every stage's passes, none of which starts before ``begin_PS``."""
    # first: start of a stage's first pass, the longest path through the preceding stages. longest: the slowest pass or
    # send up to the stage, which sets the pace of further segments. The last pass ends at first + pass + (count - 1) *
    # longest, and no earlier than in a stage that never waits.
    first, longest = begin_PS.copy(), passes_PS.copy()
    bounds = np.searchsorted(sends.stage_E, np.arange(len(order) + 1))
    for stage in order:
        edges = slice(bounds[stage], bounds[stage + 1])
        row, reader = sends.row_E[edges], sends.reader_E[edges]
        done = first[row, stage] + passes_PS[row, stage] + sends.behind_E[edges]
        first[row, reader] = np.maximum(first[row, reader], done)
        pace = np.maximum(longest[row, stage], sends.total_PS[row, stage])
        longest[row, reader] = np.maximum(longest[row, reader], pace)
    further = (count_P - 1.0)[:, None]
    return np.maximum(first + passes_PS + further * longest, begin_PS + count_P[:, None] * passes_PS)
