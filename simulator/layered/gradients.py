"""What replicas exchange and update once per step."""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.layered.candidates import Candidates
from forerun.simulator.layered.context import GRADIENT_BYTES, LayeredContext
from forerun.simulator.layered.exchange import reduce_s
from forerun.simulator.layered.layers import Floats
from forerun.spaces.layered import WEIGHTED, Kind
from forerun.spaces.layered.split import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Parameters on one device: ``dense_N`` are those that every step changes, ``tables_N`` those of embedding tables,
    of which a step changes the rows that were looked up."""

    dense_N: Floats
    tables_N: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """``whole_s``: the exchange; ``exposed_s``: what the backward pass does not hide; ``update_s``: the optimizer."""

    whole_s: Floats
    exposed_s: Floats
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


def gradients(context: LayeredContext, c: Candidates, held: Held, backward_s: Floats) -> Gradients:
    """Return exchange and update of every row; ``backward_s`` is what the exchange may hide under."""
    profile, model = context.profile, context.model
    spatial = c.is_mode(Mode.SPATIAL)
    ranks = c.replicas_N * np.where(spatial, c.parts_N, 1.0)
    stride = np.where(spatial, 1.0, c.parts_N)
    whole_model = np.where(c.is_mode(Mode.PIPELINE), held.dense_N, model.parameters - _tables(context))
    moved = held.dense_N if profile.shares_hybrid_weights else whole_model
    moved = moved - np.where(c.mixed_N, _linear(context) / c.replicas_N, 0.0)
    # Tables that are copied exchange the gradients of looked-up rows alone, those that are dealt out none.
    rows = c.batch_N * sum(float(table.lookups * table.output[-1]) for table in model.tables)
    moved = moved + np.where(c.spread_N, 0.0, np.minimum(held.tables_N, rows))
    size = moved * GRADIENT_BYTES
    buckets = np.maximum(np.round(size / profile.bucket_bytes), 1.0)
    whole = buckets * reduce_s(context, size / buckets, ranks, stride, profile.gradient_share)
    if profile.staged_bytes_per_s is not None:
        # Parts of a picture add up their gradients as they exchange their borders: through the host's memory, to one
        # of them and back.
        local = np.where(spatial & (c.parts_N > 1), 2.0 * size / profile.staged_bytes_per_s, 0.0)
        whole = whole + local
    hidden = np.minimum(whole * (1.0 - 1.0 / buckets), profile.overlap * backward_s)
    nodes = context.nodes(ranks * stride)
    # The groups of a hybrid take turns at the ports that their devices share.
    groups = np.where(c.is_mode(Mode.DATA), 1.0, np.minimum(c.parts_N, context.cluster.devices_per_node))
    waiting = np.where(nodes > 1, profile.wait_s + profile.node_step_s * groups * (nodes - 1.0), 0.0)
    whole = np.where(ranks > 1, whole + waiting, 0.0)
    update = context.update_s(held.dense_N)
    return Gradients(whole_s=whole, exposed_s=np.where(ranks > 1, whole - hidden, 0.0), update_s=update)


def _linear(context: LayeredContext) -> float:
    return float(sum(operator.parameters for operator in context.model.operators if operator.kind is Kind.LINEAR))
