"""Pipelines of whole layers: time, memory and exchange of every stage, and the end of the last stage.

GPipe (arXiv 1811.06965): all microbatches forward, followed by all backward. The cut of operators into stages depends
only on the samples of a segment and the number of stages, so every distinct *cut* is costed once. Shapes: P pipelines
(the pipeline rows of a table); C cuts; at most S stages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from forerun.simulator.opgraph.candidates import Candidates
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
from forerun.spaces.opgraph.split import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Per row (zero without a pipeline): seconds on the stage that ends last, and sizes of the ``fullest`` stage.

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


def pipeline_stages(context: GraphContext, c: Candidates) -> Stages:
    """Return the costs of the stages of every pipeline row, cut by ``split_starts``."""
    seconds = [field.name for field in fields(Stages) if field.name != "fullest"]
    holdings = [field.name for field in fields(Held)]
    columns = {name: np.zeros(len(c)) for name in (*seconds, *holdings)}
    rows = np.flatnonzero(c.is_mode(Mode.PIPELINE))
    if rows.size:
        for name, values in zip(columns, _pipelines(context, c, rows), strict=True):
            columns[name][rows] = values
    fullest = Held(**{name: columns[name] for name in holdings})
    return Stages(**{name: columns[name] for name in seconds}, fullest=fullest)


def split_starts(context: GraphContext, segment: float, parts: int) -> tuple[int, ...]:
    """Return the first operator of every stage of a pipeline with ``segment`` samples per segment."""
    forward, backward = _passes(context, np.array([segment]))
    return stage_starts(context, forward[0], backward[0], parts)


def _passes(context: GraphContext, batch_K: Floats) -> tuple[Floats, Floats]:
    """Device seconds of every operator forward and backward, [K, L]."""
    times, kinds = context.times(Local.whole(batch_K)), context.layers.kind_of_L
    return times.forward_KU[:, kinds], times.backward_KU[:, kinds]


def _pipelines(context: GraphContext, c: Candidates, rows: np.ndarray) -> tuple[Floats, ...]:
    """Return the seconds of ``Stages`` for pipeline rows, and the sizes of their fullest stages, by field."""
    profile = context.profile
    count, replicas, parts = c.segments_N[rows], c.replicas_N[rows], c.parts_N[rows]
    costs, cut_P = _distinct_costs(context, c, rows)
    cuts = costs.cuts
    most = int(cuts.count_C.max())

    def stages(name: str) -> Floats:
        return np.asarray(cuts.table(getattr(costs, f"{name}_T"))[cut_P])

    forward, backward, dense = stages("forward"), stages("backward"), stages("dense")
    whole_numbers = (replicas.astype(np.int64), parts.astype(np.int64))
    messages = [
        crossing_messages(context.model, cuts, costs.forward_CL, backward=False),
        NOTHING if context.inference else crossing_messages(context.model, cuts, costs.backward_CL, backward=True),
    ]
    outputs, sent_gradients = (
        sends_of(context.cluster, one, cut_P, *whole_numbers, segment_P=c.local_N[rows], width=context.width)
        for one in messages
    )
    done = drained_s(forward, backward, outputs, sent_gradients, count)
    exchange_s, shown = _exchanges(context, costs, cut_P, replicas, parts, stages("hiding"), done)
    several = (replicas > 1) & (not context.inference)
    rendezvous = np.where(several, rendezvous_s(profile, context.nodes(replicas * parts)), 0.0)[:, None]
    exchange_s, shown = (np.where(several[:, None], one, 0.0) + rendezvous for one in (exchange_s, shown))
    passes = count[:, None] * (forward + backward)
    straggler_wait = straggler_wait_s(profile, passes, c.devices_N[rows][:, None])
    update = context.update_s(dense)
    # The step ends with the stage whose last pass, exposed gradients, wait and update end last. The same pipeline with
    # free sends separates bubble (free - passes) from the cost of sends (done - free).
    ends = np.where(np.arange(most) < cuts.count_C[cut_P][:, None], done + shown + straggler_wait + update, -np.inf)
    last = np.arange(len(rows)), np.argmax(ends, axis=1)
    free = drained_s(forward, backward, outputs.free(), sent_gradients.free(), count)[last]
    busy = count * forward[last], count * backward[last]
    return (
        *busy,
        free - (busy[0] + busy[1]),
        done[last] - free,
        *(values[last] for values in (exchange_s, shown, straggler_wait, update)),
        *_fullest(context, c.take(rows), [dense, *map(stages, ("tables", "rows", "kept", "beyond"))]),
    )


def _fullest(context: GraphContext, c: Candidates, held_PS: Sequence[Floats]) -> list[Floats]:
    """Return the sizes of the fullest stage of every pipeline, in the order of ``Held``."""
    dense, tables, rows, kept, beyond = held_PS
    rows = np.where(c.replicas_N[:, None] > 1, rows, 0.0)
    gradients = (dense + rows) * GRADIENT_BYTES * (context.directions - 1.0)
    states = (dense + tables) * context.parameter_bytes + dense * context.state_bytes + gradients
    elements = (c.segments_N[:, None] * kept + beyond) * c.local_N[:, None] * (context.directions - 1.0)
    total = states + bucket_bytes(context, gradients, c.replicas_N[:, None]) + elements * context.width
    place = np.arange(len(c)), np.argmax(total, axis=1)
    return [values[place] for values in (dense, tables, rows, kept, beyond)]


def _distinct_costs(context: GraphContext, c: Candidates, rows: np.ndarray) -> tuple[StageCosts, np.ndarray]:
    """Return the costs of the distinct cuts of some rows, and each row's index into them."""
    # Exchanged rows of tables grow with the global batch, all other sizes with the segment.
    batch = c.batch_N[rows] if context.model.tables else np.zeros(len(rows))
    keys = np.stack([c.local_N[rows], c.parts_N[rows], batch], axis=1)
    _, first, cut_P = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    rows = rows[first]
    sizes = exchanged_bytes(context, c.take(rows))
    parts = c.parts_N[rows].astype(np.int64).tolist()
    return stage_costs(context, *_passes(context, c.local_N[rows]), sizes, parts), cut_P.reshape(-1)


def _exchanges(
    context: GraphContext,
    costs: StageCosts,
    cut_P: np.ndarray,
    replicas_P: Floats,
    parts_P: Floats,
    hiding_PS: Floats,
    done_PS: Floats,
) -> tuple[Floats, Floats]:
    """Return the seconds of every stage's exchange, and its exposed part, of shape [P, S].

    ``hiding_PS``: seconds of the last backward pass of every stage, which ends at ``done_PS``.
    """
    levels, shape = context.cluster.levels, hiding_PS.shape
    sizes, ready = (costs.cuts.table(one)[cut_P] for one in (costs.buckets.bytes_NB, costs.buckets.ready_NB))
    most = sizes.shape[2]
    messages = Messages(bytes_NB=sizes.reshape(-1, most), ready_NB=ready.reshape(-1, most))
    shapes, which = np.unique(np.stack([replicas_P, parts_P], axis=1).astype(np.int64), axis=0, return_inverse=True)
    strides = np.ones((len(shapes), shape[1]))
    for row, (replicas, parts) in zip(strides, shapes.tolist(), strict=True):
        row[:parts] = stage_strides(levels, replicas, parts)[: shape[1]]
    ranks, stride = np.repeat(replicas_P, shape[1]), strides[which.reshape(-1)].reshape(-1)
    wire = wire_s(context, messages, ranks, stride)
    latency = np.where(wire > 0, reduce_s(context.cluster, np.ones(len(ranks)), ranks, stride, 1.0)[:, None], 0.0)
    # Without overlap all buckets are sent after the pass.
    begin = done_PS - hiding_PS if context.profile.overlap else done_PS
    ready = begin[:, :, None] + messages.ready_NB.reshape(*shape, most) * bool(context.profile.overlap)
    wire, latency = wire.reshape(*shape, most), latency.reshape(*shape, most)
    wire = shared_s(context.cluster, shapes, strides, which.reshape(-1), ready, wire, latency).reshape(-1, most)
    exchange_s, shown = hidden_exchange_s(context, messages, wire, hiding_PS.reshape(-1), ranks, stride)
    return exchange_s.reshape(shape), shown.reshape(shape)
