"""Pipelines of whole layers: time, memory and exchange of every stage, and the end of the last stage.

GPipe (arXiv 1811.06965): all microbatches forward, followed by all backward. The cut of operators into stages depends
only on the samples of a segment and the number of stages, so every distinct *cut* is costed once. Shapes: P pipelines
(the pipeline rows of a table); C cuts; at most S stages.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.opgraph.candidates import SplitCandidates
from forerun.simulator.opgraph.compute import Local
from forerun.simulator.opgraph.context import GRADIENT_BYTES, GraphContext
from forerun.simulator.opgraph.gradients import exchanged_bytes, hidden_exchange_s, wire_s
from forerun.simulator.opgraph.groups import stage_strides
from forerun.simulator.opgraph.layers import Floats
from forerun.simulator.opgraph.memory import Held, bucket_bytes
from forerun.simulator.opgraph.messages import Messages, reduce_s, rendezvous_s, straggler_wait_s
from forerun.simulator.opgraph.sends import NOTHING, crossing_messages, drained_s, sends_of
from forerun.simulator.opgraph.shared_ports import shared_s
from forerun.simulator.opgraph.stage_cuts import StageCosts, stage_costs, stage_starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Per pipeline: seconds on the stage that ends last, and sizes of the ``fullest`` stage.

    ``forward_s``, ``backward_s``: all its segments; ``bubble_s``: its wait while the pipeline fills and drains;
    ``p2p_s``: additional wait for transfers between stages; ``exchange_s``, ``exposed_s``: exchange of its gradients,
    and the exposed part; ``straggler_wait_s``, ``update_s``: see ``Gradients``.
    """

    forward_s: Floats
    backward_s: Floats
    bubble_s: Floats
    p2p_s: Floats
    exchange_s: Floats
    exposed_s: Floats
    straggler_wait_s: Floats
    update_s: Floats
    fullest: Held


def split_starts(context: GraphContext, segment: float, parts: int) -> tuple[int, ...]:
    """Return the first operator of every stage of a pipeline with ``segment`` samples per segment."""
    forward, backward = _passes(context, np.array([segment]))
    return tuple(np.flatnonzero(stage_starts(context, forward, backward, np.array([float(parts)]))[0]).tolist())


def _passes(context: GraphContext, batch_K: Floats) -> tuple[Floats, Floats]:
    """Device seconds of every operator forward and backward, [K, L]."""
    times, kinds = context.times(Local.whole(batch_K)), context.layers.kind_of_L
    return times.forward_KU[:, kinds], times.backward_KU[:, kinds]


def pipeline_stages(context: GraphContext, c: SplitCandidates) -> Stages:
    """Return the costs of the stages of pipelines, cut by ``split_starts``."""
    profile, count = context.profile, c.segments_N
    costs, cut_P = _distinct_costs(context, c)
    cuts = costs.cuts
    most = int(cuts.count_C.max())

    def stages(name: str) -> Floats:
        return np.asarray(cuts.table(getattr(costs, f"{name}_T"))[cut_P])

    forward, backward, dense = stages("forward"), stages("backward"), stages("dense")
    messages = [
        crossing_messages(context.model, cuts, costs.forward_CL, backward=False),
        NOTHING if context.inference else crossing_messages(context.model, cuts, costs.backward_CL, backward=True),
    ]
    outputs, sent_gradients = (sends_of(context, c, one, cut_P) for one in messages)
    done = drained_s(forward, backward, outputs, sent_gradients, count)
    exchange_s, shown = _exchanges(context, c, costs, cut_P, stages("hiding"), done)
    several = (c.replicas_N > 1) & (not context.inference)
    rendezvous = np.where(several, rendezvous_s(profile, context.nodes(c.devices_N)), 0.0)[:, None]
    exchange_s, shown = (np.where(several[:, None], one, 0.0) + rendezvous for one in (exchange_s, shown))
    passes = count[:, None] * (forward + backward)
    straggler_wait = straggler_wait_s(profile, passes, c.devices_N[:, None])
    update = context.update_s(dense)
    # The step ends with the stage whose last pass, exposed gradients, wait and update end last. The same pipeline with
    # free sends separates bubble (free - passes) from the cost of sends (done - free).
    ends = np.where(np.arange(most) < cuts.count_C[cut_P][:, None], done + shown + straggler_wait + update, -np.inf)
    last = np.arange(len(c)), np.argmax(ends, axis=1)
    free = drained_s(forward, backward, outputs.free(), sent_gradients.free(), count)[last]
    forward_s, backward_s = count * forward[last], count * backward[last]
    return Stages(
        forward_s=forward_s,
        backward_s=backward_s,
        bubble_s=free - (forward_s + backward_s),
        p2p_s=done[last] - free,
        exchange_s=exchange_s[last],
        exposed_s=shown[last],
        straggler_wait_s=straggler_wait[last],
        update_s=update[last],
        fullest=_fullest(context, c, [dense, *map(stages, ("tables", "rows", "kept", "beyond"))]),
    )


def _fullest(context: GraphContext, c: SplitCandidates, held_PS: Sequence[Floats]) -> Held:
    """Return the sizes of the fullest stage of every pipeline."""
    dense, tables, rows, kept, beyond = held_PS
    rows = np.where(c.replicas_N[:, None] > 1, rows, 0.0)
    gradients = (dense + rows) * GRADIENT_BYTES * (context.directions - 1.0)
    states = (dense + tables) * context.parameter_bytes + dense * context.state_bytes + gradients
    elements = (c.segments_N[:, None] * kept + beyond) * c.local_N[:, None] * (context.directions - 1.0)
    total = states + bucket_bytes(context, gradients, c.replicas_N[:, None]) + elements * context.width
    place = np.arange(len(c)), np.argmax(total, axis=1)
    return Held(*(values[place] for values in (dense, tables, rows, kept, beyond)))


def cuts_of(context: GraphContext, c: SplitCandidates) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first row of every distinct cut of pipelines, and the cut of every row."""
    # Exchanged rows of tables grow with the global batch, all other sizes with the segment.
    return c.distinct(c.local_N, c.parts_N, c.batch_N * bool(context.model.tables))


def _distinct_costs(context: GraphContext, c: SplitCandidates) -> tuple[StageCosts, np.ndarray]:
    """Return the costs of the distinct cuts of pipelines, and each pipeline's index into them."""
    first, cut_P = cuts_of(context, c)
    distinct = c.take(first)
    sizes = exchanged_bytes(context, distinct)
    return stage_costs(context, *_passes(context, distinct.local_N), sizes, distinct.parts_N), cut_P


def _exchanges(
    context: GraphContext, c: SplitCandidates, costs: StageCosts, cut_P: np.ndarray, hiding_PS: Floats, done_PS: Floats
) -> tuple[Floats, Floats]:
    """Return the seconds of every stage's exchange, and its exposed part, of shape [P, S].

    ``hiding_PS``: seconds of the last backward pass of every stage, which ends at ``done_PS``.
    """
    cluster, profile, shape = context.cluster, context.profile, hiding_PS.shape
    sizes, full = (costs.cuts.table(one)[cut_P] for one in (costs.buckets.bytes_NB, costs.buckets.ready_NB))
    most = sizes.shape[2]
    messages = Messages(bytes_NB=sizes.reshape(-1, most), ready_NB=full.reshape(-1, most))
    first, which = c.distinct(c.replicas_N, c.parts_N)
    shapes = np.stack([c.replicas_N, c.parts_N], axis=1)[first].astype(np.int64)
    strides = np.ones((len(shapes), shape[1]))
    for row, (replicas, parts) in zip(strides, shapes.tolist(), strict=True):
        row[:parts] = stage_strides(cluster.levels, replicas, parts)[: shape[1]]
    wire = wire_s(context, messages, np.repeat(c.replicas_N, shape[1]), strides[which].reshape(-1))
    wire = wire.reshape(sizes.shape)
    one = np.ones(strides.shape)
    latency, launch = (
        reduce_s(cluster, one, one * shapes[:, :1], strides, share)[which] for share in (1.0, profile.gradient_share)
    )
    # Without overlap all buckets are sent after the pass.
    begin = done_PS - hiding_PS if profile.overlap else done_PS
    ready = begin[:, :, None] + full * bool(profile.overlap)
    wire = shared_s(cluster, shapes, strides, which, ready, wire, np.where(wire > 0, latency[:, :, None], 0.0))
    exchange_s, shown = hidden_exchange_s(
        context, messages, wire.reshape(-1, most), hiding_PS.reshape(-1), launch.reshape(-1)
    )
    return exchange_s.reshape(shape), shown.reshape(shape)
