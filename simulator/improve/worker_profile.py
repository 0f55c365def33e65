"""Gradient profile of one worker from traces of a run, the input of training modes (``scale``)."""

import numpy as np

from forerun.simulator.improve.from_replay import (
    holders,
    kernel_name,
    optimizer_s,
    own_gradients,
    timed_passes,
    typical,
)
from forerun.simulator.modes import GradientLayer, GradientProfile
from forerun.simulator.replay.analysis import Analysis
from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.trace import Floats, SpanKind, SpanPhase
from forerun.spaces.errors import RequestError


def worker_profile(analysis: Analysis, *, batch: float) -> GradientProfile:
    """Return the profile of the rank with the most computation in a step of ``batch`` samples (possibly the only rank).

    A layer ends when a gradient is ready. The share of a layer is assumed to be equal in forward and backward pass.
    Waits for other ranks and exposed messages are left out.

    Raises:
        RequestError: the traces name no gradients, or no operators of a backward pass.
    """
    graph = analysis.replay.graph
    place = max(range(len(graph.traces)), key=lambda one: (analysis.uses[one].compute_s, -one))
    trace, steps = graph.traces[place], len(analysis.replay.measured_s)
    passes = [timed_passes(graph, place, number) for number in range(steps)]
    chosen = typical(analysis, [len(pieces) for _, pieces in passes])
    moments, sizes = own_gradients(trace, graph, place, chosen)
    if not len(sizes):
        raise RequestError(
            "a gradient profile needs the sizes of gradients, which these traces do not say; profile with PyTorch and "
            "record_shapes=True (as forerun record does)"
        )
    forward_s = float(np.mean([seconds for seconds, _ in passes]))
    own_s = np.array([seconds + sum(piece[1] for piece in pieces) for seconds, pieces in passes])
    pieces = passes[chosen][1]
    # A kernel launched before a gradient was reported as ready belongs to it.
    turns = (
        np.searchsorted(_launched(graph, place, chosen), moments) - 1 if trace.has_device else holders(pieces, moments)
    )
    scale = (float(own_s.mean()) - forward_s) / max(sum(piece[1] for piece in pieces), 1e-12)
    layers, before, total_s = [], 0, sum(piece[1] for piece in pieces)
    ends = sorted({max(int(turn), 0) for turn in turns})
    for end in ends:
        until = len(pieces) if end == ends[-1] else end + 1
        took_s = sum(piece[1] for piece in pieces[before:until])
        layers.append(
            GradientLayer(
                name=f"{kernel_name(pieces[end][2])}.{end}",
                parameter_bytes=float(sizes[np.maximum(turns, 0) == end].sum()),
                forward_s=forward_s * took_s / max(total_s, 1e-12),
                backward_s=took_s * scale,
            )
        )
        before = until
    update_s = float(np.mean([optimizer_s(graph, place, number) for number in range(steps)]))
    rest_s = analysis.replay.step_s - analysis.uses[place].exposed_s - float(own_s.mean()) - update_s
    return GradientProfile(
        name=f"rank {trace.rank} of a traced run",
        layers=tuple(reversed(layers)),
        batch=batch,
        host_s=max(rest_s, 0.0),
        update_s=update_s,
        step_factors=tuple((own_s / own_s.mean()).tolist()) if steps > 2 else (),
    )


def _launched(graph: ReplayGraph, place: int, step: int) -> Floats:
    """Return the launch times (ascending) of the kernels of a step's backward pass, in the order of execution."""
    trace = graph.traces[place]
    spans = np.flatnonzero(
        (trace.kind == SpanKind.COMPUTE) & (trace.step == step) & (trace.phase == SpanPhase.BACKWARD)
    )
    spans = spans[np.argsort(graph.start_s[place][spans], kind="stable")]
    cause = trace.cause[spans]
    moment = np.where(cause >= 0, graph.end_s[place][cause], graph.start_s[place][spans])
    return np.maximum.accumulate(moment)
