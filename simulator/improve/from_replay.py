"""The step of a replayed run: operators and gradients of the rank with the most work, and the wire of its buckets."""

import math
from dataclasses import dataclass, replace

import numpy as np

from forerun.simulator.improve.step import Op, RankStep, StepPlan, simulate
from forerun.simulator.improve.tensor_messages import names_tensors, tensor_messages
from forerun.simulator.improve.wires import LineWire
from forerun.simulator.replay.analysis import Analysis
from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.learned import SHORTEST_S, crossing, fit_line, served_exchanges
from forerun.simulator.replay.trace import Floats, RankTrace, SpanKind, SpanPhase
from forerun.spaces.errors import RequestError

_REDUCING = ("all_reduce", "reduce_scatter")
_ALIKE = 0.02
"""Share by which bytes of reductions and of gradients may differ: buffers may be padded."""
_MESSAGE_S = 50e-6
"""Seconds of the host to request a reduction. c10d::allreduce_ took 30 to 80 us in the traces of
benchmarks/results/2026-11-24-recorded.md."""

_SLOWEST_LINK = 1e9 / 8
"""Bytes per second of the slowest network for data-parallel training (1 Gb/s Ethernet)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedStep:
    """A run's ``step`` and ``plan``.

    ``rank``: rank of the operators; ``measured_s``: seconds of the run's step; ``rest_s``: its constant part that one
    rank does not explain (waits for others, variation); ``split``: whether the trace distinguishes the gradients within
    buckets (otherwise buckets can be joined but not split). ``latency_known``: whether bucket sizes differ enough to
    separate latency from bandwidth.
    """

    step: RankStep
    plan: StepPlan
    rank: int
    measured_s: float
    rest_s: float
    split: bool
    latency_known: bool


def replayed_step(analysis: Analysis, *, link_bytes_per_s: float | None = None) -> ReplayedStep:
    """Return the step of a run, the median over its steps.

    ``link_bytes_per_s``: nominal rate of a rank's link, which separates work of hosts from work of the link; None:
    unknown, and all time that grows with a message counts as the link's.

    Raises:
        RequestError: no collective of the run exchanges gradients, or operators of backward passes cannot be
            distinguished.
    """
    graph = analysis.replay.graph
    place = max(range(len(graph.traces)), key=lambda one: (analysis.uses[one].compute_s, -one))
    trace = graph.traces[place]
    steps = len(analysis.replay.measured_s)
    passes = [timed_passes(graph, place, number) for number in range(steps)]
    step_number = typical(analysis, [len(pieces) for _, pieces in passes])
    usual = passes[step_number][1]
    same_passes = [one for one in passes if [piece[2] for piece in one[1]] == [piece[2] for piece in usual]]
    moments, gradients, sizes, split, (wire, latency_known) = _exchanged(analysis, place, step_number, link_bytes_per_s)
    took = np.mean([[piece[1] for piece in pieces] for _, pieces in same_passes], axis=0).tolist()
    owned = holders(usual, moments)
    ops, owners = _ops(usual, took, owned, gradients, float(np.mean([forward_s for forward_s, _ in same_passes])))
    buckets = _buckets(owners, gradients, sizes)
    step = RankStep(
        name=f"rank {trace.rank} of the run",
        ops=ops,
        wire=wire,
        update_s=float(np.mean([optimizer_s(graph, place, number) for number in range(steps)])),
        message_s=_MESSAGE_S,
    )
    plan, measured_s = StepPlan(buckets=buckets), analysis.replay.step_s
    rest_s = max(measured_s - simulate(step, plan).step_s, 0.0)
    return ReplayedStep(
        step=replace(step, host_s=rest_s),
        plan=plan,
        rank=trace.rank,
        measured_s=measured_s,
        rest_s=rest_s,
        split=split,
        latency_known=latency_known,
    )


def _exchanged(
    analysis: Analysis, place: int, step: int, link_bytes_per_s: float | None
) -> tuple[Floats, Floats, list[float], bool, tuple[LineWire, bool]]:
    """Return a step's gradients and messages.

    The result has the times when gradients were ready, their bytes, the bytes of their messages, whether buckets can be
    split, and the wire.
    """
    graph = analysis.replay.graph
    trace = graph.traces[place]
    if names_tensors(trace):
        every = [tensor_messages(graph, place, number) for number in range(len(analysis.replay.measured_s))]
        ready, size = (np.array([getattr(one, name) for one in every[step]]) for name in ("ready_s", "size_bytes"))
        if not len(size):
            raise RequestError("the traces do not say the sizes of the tensors that ranks send each other")
        rows = [(one.size_bytes, one.took_s) for messages in every for one in messages]
        across = crossing("all_reduce", len(graph.traces))
        return ready, size, size.tolist(), False, _line(np.array(rows), across, link_bytes_per_s)
    reductions, ranks = _reductions(graph, place, step)
    sizes = [trace.messages[span].size_bytes for span in reductions]
    moments, gradients, split = _gradients(trace, graph, place, step, reductions, sizes)
    return moments, gradients, sizes, split, _wire(analysis, ranks, link_bytes_per_s)


def _reductions(graph: ReplayGraph, place: int, step: int) -> tuple[list[int], tuple[int, ...]]:
    """Return the reductions of a step's gradients in order, and their ranks.

    Raises:
        RequestError: there is no such reduction.
    """
    # Of several groups of ranks (tensor and data parallel) it is the group whose reductions have the bytes of all
    # gradients, where the trace has their bytes.
    trace = graph.traces[place]
    between: dict[int, tuple[int, ...]] = {}
    for one in graph.matching.exchanges:
        ranks = tuple(sorted(graph.traces[member].rank for member, _ in one.members))
        between.update({span: ranks for member, span in one.members if member == place})
    groups: dict[tuple[int, ...], list[int]] = {}
    for span in sorted(trace.messages, key=lambda span: float(graph.start_s[place][span])):
        wanted = trace.messages[span].operation in _REDUCING and trace.phase[span] == SpanPhase.BACKWARD
        if wanted and trace.step[span] == step:
            groups.setdefault(between.get(span, ()), []).append(span)
    if not groups:
        raise RequestError(
            "a search over buckets needs a run whose backward pass reduces gradients, but no step of these traces has "
            "a reduction that an operator of the backward pass asked for; trace data-parallel ranks"
        )
    sizes = {ranks: sum(trace.messages[span].size_bytes for span in spans) for ranks, spans in groups.items()}
    if any(math.isnan(size) for size in sizes.values()):
        raise RequestError("the traces do not say the sizes of reductions; profile with record_shapes=True")
    gradients = float(own_gradients(trace, graph, place, step)[1].sum())
    if not gradients or trace.has_device:
        best = max(sizes, key=lambda ranks: (sizes[ranks], ranks))
        return groups[best], best
    best = min(sizes, key=lambda ranks: (abs(sizes[ranks] / gradients - 1), ranks))
    if abs(sizes[best] / gradients - 1) > _ALIKE:
        if any(message.operation == "all_gather" for message in trace.messages.values()):
            raise RequestError(
                "a search over buckets is for gradients of whole parameters (DDP, Horovod), but the ranks of these "
                "traces gather theirs (FSDP, ZeRO 3): their messages are those of its units"
            )
        raise RequestError(
            f"the gradients of rank {trace.rank} have {gradients:,.0f} bytes, but the reductions of its backward pass "
            f"{sizes[best]:,.0f}: they are not of gradients; trace data-parallel ranks"
        )
    return groups[best], best


def typical(analysis: Analysis, pieces: list[int]) -> int:
    """Return the step with the time nearest the median, among steps with the most common number of operators."""
    measured = analysis.replay.measured_s
    usual = max(set(pieces), key=lambda count: (pieces.count(count), count))
    far = np.abs(measured - np.median(measured)) + np.where(np.array(pieces) == usual, 0.0, np.inf)
    return int(np.argmin(far))


def timed_passes(graph: ReplayGraph, place: int, step: int) -> tuple[float, list[tuple[float, float, str]]]:
    """Return a rank's seconds of the forward pass, and (start, seconds, name) of its backward operators.

    ``place``: index of the rank in the graph. Each operator lasts from the end of the one before it.
    """
    trace, start_s, end_s = graph.traces[place], graph.start_s[place], graph.end_s[place]
    spans = np.flatnonzero((trace.kind == SpanKind.COMPUTE) & (trace.step == step))
    spans = spans[np.argsort(start_s[spans], kind="stable")]
    backward = spans[trace.phase[spans] == SpanPhase.BACKWARD]
    if not len(backward):
        raise RequestError("no operator of the traces belongs to a backward pass; profile the training loop")
    first_s = float(start_s[backward[0]])
    pieces, now = [], first_s
    for span in backward.tolist():
        end = max(float(end_s[span]), now)
        pieces.append((now, end - now, trace.title(span)))
        now = end
    return first_s - float(start_s[spans[0]]), pieces


def _gradients(
    trace: RankTrace, graph: ReplayGraph, place: int, step: int, reductions: list[int], sizes: list[float]
) -> tuple[Floats, Floats, bool]:
    """Return the time when each gradient was ready, and its bytes: by tensor, or by bucket without known tensors."""
    ready, gradients = own_gradients(trace, graph, place, step)
    if len(gradients) and not trace.has_device:
        return ready, gradients, True
    asked = []
    for span in reductions:
        cause = int(trace.cause[span])
        asked.append(
            float(graph.end_s[place][cause])
            if cause >= 0 and not trace.has_device
            else float(graph.start_s[place][span])
        )
    return np.array(asked), np.array(sizes), False


def holders(pieces: list[tuple[float, float, str]], moments: Floats) -> list[int]:
    """Return, for each gradient, the operator of ``pieces`` (start, seconds, name) during which it became ready.

    Operators are numbered in the order of the backward pass.
    """
    ends = np.maximum.accumulate(np.array([start + seconds for start, seconds, _ in pieces]))
    numbers: list[int] = np.minimum(np.searchsorted(ends, moments - 1e-9), len(pieces) - 1).tolist()
    return numbers


def own_gradients(trace: RankTrace, graph: ReplayGraph, place: int, step: int) -> tuple[Floats, Floats]:
    """Read from the trace the times at which gradients of a step were ready, and their bytes."""
    begin = float(graph.start_s[place][trace.step == step].min())
    last = float(graph.end_s[place][trace.step == step].max())
    ready = graph.clocks.aligned(place, trace.gradient_s) - graph.origin_s
    inside = (ready >= begin) & (ready <= last)
    return ready[inside], trace.gradient_bytes[inside]


def _ops(
    pieces: list[tuple[float, float, str]], took: list[float], holder: list[int], gradients: Floats, forward_s: float
) -> tuple[tuple[Op, ...], list[int]]:
    """Return the operators in forward order, and the operator of each gradient."""
    # The forward pass only shifts the backward pass: it is one operator, before all others.
    count = len(pieces)
    size = np.zeros(count)
    np.add.at(size, np.array(holder, dtype=np.int64), gradients)
    ops = [
        Op(
            name=f"{kernel_name(pieces[turn][2])}.{turn}",
            forward_s=0.0,
            backward_s=max(took[turn], 0.0),
            gradient_bytes=float(size[turn]),
        )
        for turn in range(count - 1, -1, -1)
    ]
    return (Op(name="forward pass", forward_s=forward_s, backward_s=0.0), *ops), [count - turn for turn in holder]


def kernel_name(name: str) -> str:
    """Return an operator's name without the prefix and suffix of the autograd engine."""
    return name.split("evaluate_function: ")[-1][:80]


def _buckets(owners: list[int], gradients: Floats, sizes: list[float]) -> tuple[tuple[int, ...], ...]:
    """Return the run's own buckets as operators: gradients in order, cut by the reductions' bytes."""
    limits = np.cumsum(sizes) * (1 - 1e-6)
    reached = np.cumsum(gradients)
    number = np.minimum(np.searchsorted(limits, reached - gradients * 0.5), len(sizes) - 1)
    buckets: list[list[int]] = [[] for _ in sizes]
    seen: set[int] = set()
    for owner, bucket in zip(owners, number.tolist(), strict=True):
        if owner not in seen:
            seen.add(owner)
            buckets[bucket].append(owner)
    return tuple(tuple(bucket) for bucket in buckets if bucket)


def _wire(analysis: Analysis, ranks: tuple[int, ...], link_bytes_per_s: float | None) -> tuple[LineWire, bool]:
    """Return the line through all reductions of the run, or only their rate (and False) where sizes hardly differ."""
    graph = analysis.replay.graph
    rows, across = [], 0.0
    for one, took_s in served_exchanges(graph):
        between = tuple(sorted(graph.traces[place].rank for place, _ in one.members))
        if one.operation in _REDUCING and one.size_bytes > 0 and between == ranks:
            rows.append((one.size_bytes, took_s))
            across = max(across, crossing(one.operation, one.size))
    table = np.array(rows, dtype=np.float64).reshape(-1, 2)
    if not len(table):
        raise RequestError("no reduction of the traces has members on two ranks; give the traces of all ranks")
    return _line(table, across, link_bytes_per_s)


def _line(table: Floats, across: float, link_bytes_per_s: float | None) -> tuple[LineWire, bool]:
    """Return the line through (bytes, seconds) of messages that cross a link ``across`` times."""
    latency_s, rate = fit_line(table[:, 0], table[:, 1])
    known = not math.isnan(rate)
    if not known:
        # With one size, the time beyond the slowest link counts per message.
        slowest = min(_SLOWEST_LINK, link_bytes_per_s or math.inf)
        latency_s = max(float(np.median(table[:, 1] - across * table[:, 0] / slowest)), 0.0)
        rate = float(np.median(table[:, 0] / np.maximum(table[:, 1] - latency_s, SHORTEST_S)))
    host_s = 0.0 if link_bytes_per_s is None else max(1 / rate - across / link_bytes_per_s, 0.0)
    return LineWire(latency_s=latency_s, bytes_per_s=rate, host_s_per_byte=host_s), known


def optimizer_s(graph: ReplayGraph, place: int, step: int) -> float:
    """Return the seconds of the optimizer, from its first operator to the step's end."""
    trace = graph.traces[place]
    spans = np.flatnonzero(
        (trace.phase == SpanPhase.OPTIMIZER) & (trace.step == step) & (trace.kind == SpanKind.COMPUTE)
    )
    if not len(spans):
        return 0.0
    return float(graph.end_s[place][spans].max() - graph.start_s[place][spans].min())
