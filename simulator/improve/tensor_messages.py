"""Gradients of runs whose traces name tensors (dPRO, BytePS): what each is, when it was ready, how long it travelled.

Such traces have the pieces of a tensor on their way, SEND and RECV or push and pull, and no collective. From the first
piece to the last is what the tensor takes; of ranks that wait for others the one that waits least says how long.
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
    """One tensor of a step: ``ready_s`` when its gradient was there, its bytes, and the seconds that it travelled."""

    name: str
    ready_s: float
    size_bytes: float
    took_s: float


def names_tensors(trace: RankTrace) -> bool:
    """Return whether a rank's messages are pieces of named tensors, none of them a reduction."""
    operations = {message.operation for message in trace.messages.values()}
    return bool(operations & {"send", _PUSHED}) and not operations & set(_ALL)


def tensor_of(title: str) -> str:
    """Return the tensor of the title of a piece; empty where it names none.

    >>> tensor_of("Comm.layer1.conv.SEND")
    'layer1.conv'
    """
    word, _, rest = title.partition(".")
    return rest.rpartition(".")[0] if word == "Comm" else ""


def tensor_messages(graph: ReplayGraph, place: int, step: int) -> list[TensorMessage]:
    """Return the tensors that the rank at ``place`` exchanged in a step, as they became ready."""
    trace = graph.traces[place]
    made = _made_s(graph, place, step)
    windows = [_windows(graph, other, step) for other in range(len(graph.traces))]
    messages = []
    for tensor, (begin_s, _) in windows[place].items():
        size = _size_bytes(trace, step, tensor, len(graph.traces))
        took = [end - begin for begin, end in (one[tensor] for one in windows if tensor in one)]
        if size > 0:
            messages.append(
                TensorMessage(
                    name=tensor, ready_s=made.get(tensor, begin_s), size_bytes=size, took_s=max(min(took), 0.0)
                )
            )
    return sorted(messages, key=lambda one: (one.ready_s, one.name))


def _made_s(graph: ReplayGraph, place: int, step: int) -> dict[str, float]:
    """Return the ends of the backward operators that are called like tensors."""
    trace = graph.traces[place]
    own = np.flatnonzero((trace.phase == SpanPhase.BACKWARD) & (trace.kind == SpanKind.COMPUTE) & (trace.step == step))
    return {trace.title(span).partition(".")[2]: float(graph.end_s[place][span]) for span in own.tolist()}


def _windows(graph: ReplayGraph, place: int, step: int) -> dict[str, tuple[float, float]]:
    """Return the begin and the end of every tensor's way, what ranks agree on before it left out."""
    trace, found = graph.traces[place], dict[str, tuple[float, float]]()
    for span in np.flatnonzero((trace.kind != SpanKind.COMPUTE) & (trace.step == step)).tolist():
        message, tensor = trace.messages.get(span), tensor_of(trace.title(span))
        if not tensor or (message is not None and message.operation == "barrier"):
            continue
        begin, end = float(graph.start_s[place][span]), float(graph.end_s[place][span])
        before = found.get(tensor, (begin, end))
        found[tensor] = (min(begin, before[0]), max(end, before[1]))
    return found


def _size_bytes(trace: RankTrace, step: int, tensor: str, ranks: int) -> float:
    """Return the bytes of a tensor: of a ring every rank sends 2 (n - 1) / n of them in pieces."""
    sizes: dict[str, list[float]] = defaultdict(list)
    for span, message in trace.messages.items():
        if trace.step[span] == step and tensor_of(trace.title(span)) == tensor and np.isfinite(message.size_bytes):
            sizes[message.operation].append(message.size_bytes)
    if sizes[_PUSHED]:
        return sum(sizes[_PUSHED])
    return sum(sizes["send"]) * ranks / (2.0 * max(ranks - 1, 1))
