"""Machine properties measured in a run: slowdown of kernels under overlap, and achieved bandwidth of messages."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np

from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.matching import MatchedMessage
from forerun.simulator.replay.shares import overlapped_s
from forerun.simulator.replay.trace import Floats, SpanKind

_KINDS = (
    ("attention", r"attention|flash|fmha|sdpa"),
    ("convolution", r"conv|winograd|implicit_gemm|dgrad|wgrad"),
    ("gemm", r"gemm|matmul|addmm|\bmm\b|bmm|linear|cublas|xmma|nvjet|cutlass|AddmmBackward|MmBackward"),
    ("normalisation", r"norm"),
    ("optimizer", r"adam|sgd|optimizer|multi_tensor"),
    ("copy", r"memcpy|memset|copy"),
    ("elementwise", r"elementwise|vectorized|relu|gelu|silu|add|mul|div|dropout|softmax|reduce|sum|tanh|sqrt"),
)
_MOSTLY, _HARDLY = 0.8, 0.02
"""Overlapped shares of a kernel from which it counts as overlapped, and up to which it counts as alone."""
_FEWEST = 3
"""Required occurrences of a kernel in each class."""
_ROUNDS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
"""Factor on (n - 1) / n of the tensor that crosses a rank's link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedOverlap:
    """Slowdown of one kind of kernel.

    ``factor``: time during messages over time alone, for the same kernel and shape, weighted by time; ``kernels``:
    number of distinct kernels seen in both conditions.
    """

    kind: str
    factor: float
    kernels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """Use of links by one kind of message and number of ranks.

    ``bandwidth_bytes_per_s``: median bytes per second on a rank's link after the last arrival, over the larger half of
    the messages. ``latency_s``, ``bytes_per_s``: parameters of the line through (tensor bytes, seconds); NaN where
    sizes are equal or unknown.
    """

    operation: str
    size: int
    ranks: tuple[int, ...]
    count: int
    total_bytes: float
    busy_s: float
    bandwidth_bytes_per_s: float
    latency_s: float
    bytes_per_s: float


def kernel_kind(name: str) -> str:
    """Return the kind of a kernel or operator from its name."""
    for kind, pattern in _KINDS:
        if re.search(pattern, name, re.IGNORECASE):
            return kind
    return "other"


def overlap_factors(graph: ReplayGraph) -> tuple[LearnedOverlap, ...]:
    """Return the slowdown of every kind of kernel that ran both during messages and alone."""
    alone: dict[tuple[int, str, int], list[float]] = defaultdict(list)
    under: dict[tuple[int, str, int], list[float]] = defaultdict(list)
    for place, trace in enumerate(graph.traces):
        took = graph.end_s[place] - graph.start_s[place]
        share = overlapped_s(graph, place) / np.maximum(took, 1e-12)
        known = np.array([bool(shape) for shape in trace.variants])[trace.variant]
        for span in np.flatnonzero((trace.kind == SpanKind.COMPUTE) & (took > 0) & known).tolist():
            into = under if share[span] >= _MOSTLY else alone if share[span] <= _HARDLY else None
            if into is not None:
                into[place, trace.title(span), int(trace.variant[span])].append(float(took[span]))
    total: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for key, times in under.items():
        if len(times) >= _FEWEST and len(alone.get(key, ())) >= _FEWEST:
            sums = total[kernel_kind(key[1])]
            sums[0] += len(times) * float(np.median(times))
            sums[1] += len(times) * float(np.median(alone[key]))
            sums[2] += 1
    return tuple(
        LearnedOverlap(kind=kind, factor=slow / fast, kernels=int(count))
        for kind, (slow, fast, count) in sorted(total.items())
    )


def link_uses(graph: ReplayGraph) -> tuple[LinkUse, ...]:
    """Return the achieved rate of every kind of message, most time first."""
    seen: dict[tuple[str, int, tuple[int, ...]], list[tuple[float, float]]] = defaultdict(list)
    for one, took_s in served_exchanges(graph):
        ranks = tuple(sorted(graph.traces[place].rank for place, _ in one.members))
        seen[one.operation, one.size, ranks].append((one.size_bytes, took_s))
    uses = [_link_use(*key, np.array(rows)) for key, rows in seen.items()]
    return tuple(sorted(uses, key=lambda use: (-use.busy_s, use.operation, use.ranks)))


def served_exchanges(graph: ReplayGraph) -> list[tuple[MatchedMessage, float]]:
    """Return every exchange with the seconds for which it had the link, from the last arrival to the median end.

    Where several exchanges of the same ranks are under way at once (gloo works on two), each counts with its share of
    the time, for example half of the common time of two. Exchanges that ended before the last arrival are left out.
    """
    between: dict[tuple[int, ...], list[tuple[float, float, MatchedMessage]]] = defaultdict(list)
    for one in graph.matching.exchanges:
        last = max(float(graph.start_s[place][span]) for place, span in one.members)
        ends = [float(graph.end_s[place][span]) for place, span in one.members]
        end = max(ends) if one.operation == "pair" else float(np.median(ends))
        if end > last:
            between[tuple(sorted(place for place, _ in one.members))].append((last, end, one))
    served = []
    for rows in between.values():
        times = shared_seconds([(low, high) for low, high, _ in rows])
        served += [(one, seconds) for (_, _, one), seconds in zip(rows, times, strict=True)]
    return served


def shared_seconds(intervals: Sequence[tuple[float, float]]) -> list[float]:
    """Return the length of each interval, where a moment that n intervals share counts 1/n for each.

    >>> shared_seconds([(0.0, 4.0), (2.0, 6.0)])
    [3.0, 3.0]
    """
    marks = sorted([(low, 1, place) for place, (low, _) in enumerate(intervals)])
    marks = sorted([*marks, *((high, 0, place) for place, (_, high) in enumerate(intervals))])
    seconds, active, before = [0.0] * len(intervals), set[int](), 0.0
    for moment, begins, place in marks:
        for one in active:
            seconds[one] += (moment - before) / len(active)
        before = moment
        if begins:
            active.add(place)
        else:
            active.discard(place)
    return seconds


def _link_use(operation: str, size: int, ranks: tuple[int, ...], rows: Floats) -> LinkUse:
    known = rows[~np.isnan(rows[:, 0])]
    factor = crossing(operation, size)
    bandwidth = float("nan")
    timed = known[known[:, 1] >= SHORTEST_S]
    if len(timed) and timed[:, 0].max() > 0:
        large = timed[timed[:, 0] >= np.median(timed[:, 0])]
        bandwidth = factor * float(np.median(large[:, 0] / large[:, 1]))
    latency_s, rate = fit_line(timed[:, 0], timed[:, 1])
    return LinkUse(
        operation="send and receive" if operation == "pair" else operation,
        size=size,
        ranks=ranks,
        count=len(rows),
        total_bytes=float(known[:, 0].sum()),
        busy_s=float(rows[:, 1].sum()),
        bandwidth_bytes_per_s=bandwidth,
        latency_s=latency_s,
        bytes_per_s=rate,
    )


def crossing(operation: str, size: int) -> float:
    """Return the number of times that a tensor crosses the link of one of ``size`` ranks."""
    return _ROUNDS.get(operation, 0.0) * (size - 1) / size or 1.0


SHORTEST_S = 1e-9
"""Shortest measurable message: stamps of profilers are in microseconds or nanoseconds."""


def fit_line(size_bytes: Floats, seconds: Floats) -> tuple[float, float]:
    """Return (latency, bytes per second) of the least-squares line, weighted by relative error.

    Neither is below zero; NaN where there are fewer than two sizes, or time does not grow with size.
    """
    nothing = (float("nan"), float("nan"))
    usable = (seconds >= SHORTEST_S) & (seconds < np.inf)
    size_bytes, seconds = size_bytes[usable], seconds[usable]
    if len(size_bytes) < 2 or not size_bytes.max() > 1.2 * max(size_bytes.min(), 1.0):
        return nothing
    from scipy.optimize import nnls

    design = np.column_stack([1 / seconds, size_bytes / seconds])
    scale = np.linalg.norm(design, axis=0)
    values, _ = nnls(design / scale, np.ones(len(seconds)))
    latency, slope = values / scale
    return nothing if not slope > 0 or isnan(latency) else (float(latency), float(1 / slope))
