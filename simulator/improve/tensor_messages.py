"""Gradients in traces that name tensors (dPRO, BytePS): sizes, start and duration of their messages.

Such traces have the pieces of a tensor (SEND and RECV, or push and pull) and no collective. A tensor's message lasts
from its first piece to its last; the shortest time over all ranks counts, since the other ranks also waited.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.trace import RankTrace, SpanKind, SpanPhase

_ALL = ("all_reduce", "reduce_scatter")
_PUSHED = "push_pull"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMessage:
    """One tensor of a step; its gradient was ready at ``ready_s`` and travelled for ``took_s`` seconds."""

    name: str
    ready_s: float
    size_bytes: float
    took_s: float


def names_tensors(trace: RankTrace) -> bool:
    """Check whether a rank's messages are pieces of named tensors, none of them a reduction."""
    operations = {message.operation for message in trace.messages.values()}
    return bool(operations & {"send", _PUSHED}) and not operations & set(_ALL)


def tensor_of(title: str) -> str:
    """Return the tensor named by the title of a piece; empty for none.

    >>> tensor_of("Comm.layer1.conv.SEND")
    'layer1.conv'
    """
    word, _, rest = title.partition(".")
    return rest.rpartition(".")[0] if word == "Comm" else ""


def tensor_messages(graph: ReplayGraph, place: int, step: int) -> list[TensorMessage]:
    """Return the tensors that the rank at ``place`` exchanged in a step, in the order in which they became ready."""
    trace = graph.traces[place]
    made, sizes = _made_s(graph, place, step), _sizes_bytes(trace, step, len(graph.traces))
    windows = [_windows(graph, other, step) for other in range(len(graph.traces))]
    messages = []
    for tensor, (begin_s, _) in windows[place].items():
        size = sizes.get(tensor, 0.0)
        took = [end - begin for begin, end in (one[tensor] for one in windows if tensor in one)]
        if size > 0:
            messages.append(
                TensorMessage(
                    name=tensor, ready_s=made.get(tensor, begin_s), size_bytes=size, took_s=max(min(took), 0.0)
                )
            )
    return sorted(messages, key=lambda one: (one.ready_s, one.name))


def _made_s(graph: ReplayGraph, place: int, step: int) -> dict[str, float]:
    """Return the ends of the backward operators named like tensors."""
    trace = graph.traces[place]
    spans = np.flatnonzero(
        (trace.phase == SpanPhase.BACKWARD) & (trace.kind == SpanKind.COMPUTE) & (trace.step == step)
    )
    return {trace.title(span).partition(".")[2]: float(graph.end_s[place][span]) for span in spans.tolist()}


def _windows(graph: ReplayGraph, place: int, step: int) -> dict[str, tuple[float, float]]:
    """Return the start and end of every tensor's transfer, without the preceding negotiation of ranks."""
    trace, windows = graph.traces[place], dict[str, tuple[float, float]]()
    for span in np.flatnonzero((trace.kind != SpanKind.COMPUTE) & (trace.step == step)).tolist():
        message, tensor = trace.messages.get(span), tensor_of(trace.title(span))
        if not tensor or (message is not None and message.operation == "barrier"):
            continue
        begin, end = float(graph.start_s[place][span]), float(graph.end_s[place][span])
        before = windows.get(tensor, (begin, end))
        windows[tensor] = (min(begin, before[0]), max(end, before[1]))
    return windows


def _sizes_bytes(trace: RankTrace, step: int, ranks: int) -> dict[str, float]:
    """Return the bytes of every tensor; in a ring of n ranks each sends 2 (n - 1) / n of them in pieces."""
    sizes: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for span, message in trace.messages.items():
        if trace.step[span] == step and np.isfinite(message.size_bytes):
            sizes[tensor_of(trace.title(span))][message.operation] += message.size_bytes
    return {
        tensor: one[_PUSHED] if _PUSHED in one else one["send"] * ranks / (2.0 * max(ranks - 1, 1))
        for tensor, one in sizes.items()
    }
