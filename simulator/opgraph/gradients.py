"""What replicas exchange and update once per step."""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.opgraph.candidates import Candidates
from forerun.simulator.opgraph.context import GRADIENT_BYTES, LayeredContext
from forerun.simulator.opgraph.layers import Floats
from forerun.simulator.opgraph.messages import Filling, exposed_s, fill, meeting_s, reduce_s, straggle_s
from forerun.spaces.opgraph import WEIGHTED, Kind
from forerun.spaces.opgraph.split import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Parameters on one device: ``dense_N`` are those that every step changes, ``tables_N`` those of embedding tables,
    of which a step changes the rows that were looked up."""

    dense_N: Floats
    tables_N: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """``whole_s``: the exchange, with the meeting of nodes; ``exposed_s``: what of it the backward pass does not hide,
    and what its launches take from that; ``straggle_s``: the wait for the slowest device; ``update_s``: the
    optimizer."""

    whole_s: Floats
    exposed_s: Floats
    straggle_s: Floats
    update_s: Floats


def held_parameters(context: LayeredContext, c: Candidates, stage_dense_N: Floats, stage_tables_N: Floats) -> Held:
    """Return what one device holds; ``stage_*`` is that of the fullest stage of a pipeline."""
    model = context.model
    products = float(sum(operator.parameters for operator in model.operators if operator.kind in WEIGHTED))
    tables = _tables(context)
    cut = c.is_mode(Mode.FILTER) | c.is_mode(Mode.CHANNEL)
    dense = model.parameters - tables - products * np.where(cut, 1.0 - 1.0 / c.parts_N, 0.0)
    dense = dense - _linear(context) * np.where(c.mixed_N, 1.0 - 1.0 / c.replicas_N, 0.0)
    pipeline = c.is_mode(Mode.PIPELINE)
    return Held(
        dense_N=np.where(pipeline, stage_dense_N, dense),
        tables_N=np.where(pipeline, stage_tables_N, tables * np.where(c.spread_N, table_share(context, c), 1.0)),
    )


def _tables(context: LayeredContext) -> float:
    return float(sum(table.parameters for table in context.model.tables))


def table_share(context: LayeredContext, c: Candidates) -> Floats:
    """Share of all tables that the fullest device holds when they are dealt out whole, largest first."""
    sizes = sorted((float(table.parameters) for table in context.model.tables), reverse=True)
    if not sizes:
        return np.ones(len(c))
    shares = {}
    for devices in {int(count) for count in c.replicas_N}:
        load = np.zeros(min(devices, len(sizes)))
        for size in sizes:
            load[int(np.argmin(load))] += size
        shares[devices] = float(load.max()) / sum(sizes)
    return np.array([shares[int(count)] for count in c.replicas_N])


def gradients(context: LayeredContext, c: Candidates, held: Held, backward_NL: Floats, busy_N: Floats) -> Gradients:
    """Return exchange, straggling and update of every row; ``backward_NL``: seconds of the backward pass that the
    exchange may hide under, by operator; ``busy_N``: of all computation of a step."""
    profile = context.profile
    spatial = c.is_mode(Mode.SPATIAL)
    ranks = c.replicas_N * np.where(spatial, c.parts_N, 1.0)
    stride = np.where(spatial, 1.0, c.parts_N)
    sizes = exchanged_bytes(context, c, held)
    backward = backward_NL.sum(axis=1)
    messages = fill(Filling.of(profile), sizes, backward_NL)
    sent = messages.sent_NB
    far, near = ranks[:, None], stride[:, None]
    share = profile.gradient_share
    wire = sent * reduce_s(context.cluster, np.maximum(messages.bytes_NB, 1.0), far, near, share)
    blocked = profile.blocked_share * reduce_s(context.cluster, np.ones(len(c)), ranks, stride, share)
    shown = exposed_s(messages, wire, blocked, backward)
    whole = wire.sum(axis=1)
    shown = profile.overlap * shown + (1.0 - profile.overlap) * whole
    if profile.staged_bytes_per_s is not None:
        # Parts of a picture add up their gradients as they exchange their borders: through the host's memory, to one
        # of them and back.
        local = np.where(spatial & (c.parts_N > 1), 2.0 * sizes.sum(axis=1) / profile.staged_bytes_per_s, 0.0)
        whole, shown = whole + local, shown + local
    # The groups of a hybrid take turns at the ports that their devices share.
    groups = np.where(c.is_mode(Mode.DATA), 1.0, np.minimum(c.parts_N, context.cluster.devices_per_node))
    meeting = np.where(ranks > 1, meeting_s(profile, context.nodes(ranks * stride), groups), 0.0)
    return Gradients(
        whole_s=np.where(ranks > 1, whole, 0.0) + meeting,
        exposed_s=np.where(ranks > 1, shown, 0.0) + meeting,
        straggle_s=straggle_s(profile, busy_N, c.devices_N),
        update_s=context.update_s(held.dense_N),
    )


def exchanged_bytes(context: LayeredContext, c: Candidates, held: Held) -> Floats:
    """Return the bytes of every operator's gradient that replicas exchange, of shape [N, L]."""
    model, layers = context.model, context.layers
    every = layers.per_operator("parameters")
    table = layers.is_kind(Kind.EMBEDDING)
    cut = (c.is_mode(Mode.FILTER) | c.is_mode(Mode.CHANNEL)) & context.profile.shares_hybrid_weights
    parts = np.where(cut, c.parts_N, 1.0)[:, None]
    sizes = np.where(layers.weighted, every / parts, every)
    # Linear layers of a mixed split are cut over all replicas: nobody else has their gradients.
    sizes = np.where(c.mixed_N[:, None] & layers.is_kind(Kind.LINEAR), 0.0, sizes)
    # Tables that are copied exchange the gradients of looked-up rows alone, those that are dealt out none.
    rows = np.stack([context.sent_elements(operator, c.batch_N) for operator in model.operators], axis=1)
    sizes = np.where(table, np.where(c.spread_N[:, None], 0.0, rows), sizes)
    pipeline = c.is_mode(Mode.PIPELINE)
    if np.any(pipeline):
        # The fullest stage stands for all: as the whole model, in the share of it that it holds.
        dense, tables = float(np.where(table, 0.0, every).sum()), float(np.where(table, every, 0.0).sum())
        own = np.where(table, (held.tables_N / max(tables, 1.0))[:, None], (held.dense_N / max(dense, 1.0))[:, None])
        sizes = np.where(pipeline[:, None], sizes * own, sizes)
    return np.asarray(sizes * GRADIENT_BYTES)


def _linear(context: LayeredContext) -> float:
    return float(sum(operator.parameters for operator in context.model.operators if operator.kind is Kind.LINEAR))
