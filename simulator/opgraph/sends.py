"""Messages between the stages of pipelines, and the end of every stage's last pass.

Stages and the links between them behave like the machines of a flow shop with equal jobs: the last job leaves machine k
after the sum of all times up to k plus, for every further job, the longest of these times. Shapes: P pipelines of at
most S stages; M messages of all pipelines.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from forerun.simulator.opgraph.candidates import SplitCandidates
from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.groups import distinct_replicas, per_shape
from forerun.simulator.opgraph.layers import Floats
from forerun.simulator.opgraph.stage_cuts import Ints, StageCuts
from forerun.simulator.opgraph.stage_wires import SentMessages, message_seconds, port_seconds
from forerun.spaces.clusters.spec import NETWORK_KINDS
from forerun.spaces.opgraph import GraphModel


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMessages:
    """Messages between the stages of cuts for one segment in one direction, by cut in the order of sending.

    ``stage_M`` of ``cut_M`` sends ``elements_M`` per sample to ``reader_M``. Seconds from the start of a pass:
    ``made_M`` until the message is ready, ``needs_M`` until the reader needs it. ``pass_M``: seconds of the sending
    pass.
    """

    cut_M: Ints
    stage_M: Ints
    reader_M: Ints
    elements_M: Floats
    made_M: Floats
    needs_M: Floats
    pass_M: Floats


_EMPTY: Any = np.zeros(0, dtype=np.int64)
NOTHING = StageMessages(**dict.fromkeys((field.name for field in fields(StageMessages)), _EMPTY))


def crossing_messages(model: GraphModel, cuts: StageCuts, seconds_CL: Floats, *, backward: bool) -> StageMessages:
    """Return the messages for one segment between the stages of every cut.

    A forward pass sends an output to every other stage that reads it, a ``backward`` pass returns its gradient, summed
    over the readers of one stage. ``seconds_CL``: seconds of the operators.
    """
    maker_E, reader_E, input_E, elements_E = _edges(model)
    stage_CL, last = cuts.stage_CL, cuts.operators - 1
    maker_CE, reader_CE = stage_CL[:, maker_E], stage_CL[:, reader_E]
    # Edges of one output are in the order of their readers, so further readers of a stage are adjacent.
    again_CE = (reader_CE == np.roll(reader_CE, 1, axis=1)) & (maker_E == np.roll(maker_E, 1)) & (maker_E.size > 1)
    again_CE[:, :1] = False
    cut, edge = np.nonzero((maker_CE != reader_CE) & ~again_CE)
    if backward:
        # Gradients are sent in the order of the pass, and those of one operator in the order of its inputs.
        order = np.lexsort((input_E[edge], -reader_E[edge], reader_CE[cut, edge], cut))
        cut, edge = cut[order], edge[order]
    source, target = (reader_E, maker_E) if backward else (maker_E, reader_E)
    sender, reader = stage_CL[cut, source[edge]], stage_CL[cut, target[edge]]
    # Seconds and places in the order of the pass.
    seconds_CL = seconds_CL[:, ::-1] if backward else seconds_CL
    made, read, begin_T, end_T = (
        last - one if backward else one
        for one in (
            source[edge],
            target[edge],
            *((cuts.end_T - 1, cuts.start_T) if backward else (cuts.start_T, cuts.end_T - 1)),
        )
    )
    ready_CL = np.cumsum(seconds_CL, axis=1)
    started_T = ready_CL[cuts.cut_T, begin_T] - seconds_CL[cuts.cut_T, begin_T]
    sending, reading = cuts.first_C[cut] + sender, cuts.first_C[cut] + reader
    return StageMessages(
        cut_M=cut,
        stage_M=sender,
        reader_M=reader,
        elements_M=elements_E[edge],
        made_M=ready_CL[cut, made] - started_T[sending],
        needs_M=ready_CL[cut, read] - seconds_CL[cut, read] - started_T[reading],
        pass_M=ready_CL[cut, end_T[sending]] - started_T[sending],
    )


@lru_cache(maxsize=64)
def _edges(model: GraphModel) -> tuple[Ints, Ints, Ints, Floats]:
    """Return who reads which output, by output and reader: places of both, number of the input, elements per sample."""
    places = {operator.name: place for place, operator in enumerate(model.operators)}
    edges: dict[tuple[int, int], int] = {}
    for place, operator in enumerate(model.operators):
        for number, name in enumerate(operator.inputs):
            edges.setdefault((places[name], place), number)
    table = np.array([(*edge, number) for edge, number in sorted(edges.items())], dtype=np.int64).reshape(-1, 3)
    size = np.array([float(operator.output_elements) for operator in model.operators])
    return table[:, 0], table[:, 1], table[:, 2], size[table[:, 0]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sends:
    """Messages of P pipelines in one direction.

    ``total_PS``: seconds of all messages of a stage for one segment, or of all on one of their ports. An edge connects
    a stage to a reader; edges are sorted by the sending stage. ``row_E``: its pipeline. ``behind_E``: seconds from the
    end of the sending pass until the reader can start, negative where the reader computes other operators first.
    ``free_E``: the same with messages of zero duration.
    """

    total_PS: Floats
    row_E: Ints
    stage_E: Ints
    reader_E: Ints
    behind_E: Floats
    free_E: Floats

    def free(self) -> "Sends":
        """Copy the edges with messages of zero duration."""
        return replace(self, total_PS=np.zeros_like(self.total_PS), behind_E=self.free_E)


def sends_of(context: GraphContext, c: SplitCandidates, messages: StageMessages, cut_P: Ints) -> Sends:
    """Return the messages of pipelines; a stage sends messages in sequence, as they become ready.

    ``cut_P``: cut of each pipeline.
    """
    parts_P = c.parts_N.astype(np.int64)
    levels = context.cluster.levels
    inside = (*(level for level in levels[:-1] if level.kind not in NETWORK_KINDS), *levels[-1:])
    places_P, ports_P = (per_shape(c, partial(distinct_replicas, known)).astype(np.int64) for known in (levels, inside))
    counts = np.bincount(messages.cut_M, minlength=int(cut_P.max(initial=0)) + 1)
    most, pipelines = int(parts_P.max(initial=1)), len(cut_P)
    row = np.repeat(np.arange(pipelines), counts[cut_P])
    begins = np.concatenate([[0], np.cumsum(counts)])[:-1]
    # Indices of the messages of every pipeline's cut among the messages of all cuts.
    order = np.arange(len(row)) - np.repeat(np.cumsum(counts[cut_P]) - counts[cut_P], counts[cut_P])
    place = begins[cut_P][row] + order

    def column(name: str) -> np.ndarray:
        return np.asarray(getattr(messages, name)[place])

    stage, reader, made, needs, pass_M = (column(f"{name}_M") for name in ("stage", "reader", "made", "needs", "pass"))
    size = c.local_N[row] * column("elements_M") * context.width
    sent = SentMessages(
        parts_P=parts_P, places_P=places_P, ports_P=ports_P, row_M=row, stage_M=stage, reader_M=reader, bytes_M=size
    )
    took = message_seconds(context.cluster, sent)
    now_PS, total_PS = np.zeros((pipelines, most)), np.zeros((pipelines, most))
    end = np.zeros(len(row))
    for number in _numbers(row * most + stage):
        one = row[number], stage[number]
        end[number] = now_PS[one] = np.maximum(now_PS[one], made[number]) + took[number]
        total_PS[one] += took[number]
    # Messages of several stages into one device or over the ports of one node set the pace of their senders.
    np.maximum.at(total_PS, (row, stage), port_seconds(context.cluster, sent))
    edge = (row * most + stage) * most + reader
    distinct, which = np.unique(edge, return_inverse=True)
    latest, free = (np.full(len(distinct), -np.inf) for _ in range(2))
    np.maximum.at(latest, which, end - pass_M - needs)
    np.maximum.at(free, which, made - pass_M - needs)
    source = distinct // most % most
    by_stage = np.argsort(source, kind="stable")
    return Sends(
        total_PS=total_PS,
        row_E=(distinct // most // most)[by_stage],
        stage_E=source[by_stage],
        reader_E=(distinct % most)[by_stage],
        behind_E=latest[by_stage],
        free_E=free[by_stage],
    )


def _numbers(owner_M: Ints) -> list[Ints]:
    """Return the first messages of all owners, the second messages, and so on; messages of one owner are adjacent."""
    first = np.flatnonzero(np.diff(owner_M, prepend=-1))
    number = np.arange(len(owner_M)) - np.repeat(first, np.diff(np.append(first, len(owner_M))))
    return [np.flatnonzero(number == one) for one in range(int(number.max(initial=-1)) + 1)]


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
