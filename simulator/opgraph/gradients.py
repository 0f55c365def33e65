"""Gradients that replicas exchange once per step."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.opgraph.candidates import SplitCandidates
from forerun.simulator.opgraph.context import GRADIENT_BYTES, GraphContext
from forerun.simulator.opgraph.groups import halo_ways, padded_grid, part_strides, per_shape, replica_strides
from forerun.simulator.opgraph.layers import Floats, added
from forerun.simulator.opgraph.messages import (
    Filling,
    Messages,
    exposed_s,
    fill,
    reduce_s,
    rendezvous_s,
    straggler_wait_s,
)
from forerun.simulator.opgraph.shared_ports import at_pace, rings_met, simultaneous_pace
from forerun.spaces.opgraph import Kind
from forerun.spaces.opgraph.split import Mode, Split

_LEAST_S = 1e-12
"""Seconds in place of zero in a divisor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMessages:
    """Gradients of one replica: its ``buckets``, and the seconds of the backward pass that can hide their exchange.

    ``backward_N``: all of them; ``moved_N``: exchange between the parts of the replica; ``bytes_N``: of all gradients.
    """

    buckets: Messages
    backward_N: Floats
    moved_N: Floats
    bytes_N: Floats

    def take(self, rows: NDArray[np.intp]) -> "ReplicaMessages":
        """Return some rows, in the order given."""
        buckets = Messages(bytes_NB=self.buckets.bytes_NB[rows], ready_NB=self.buckets.ready_NB[rows])
        backward, moved, size = (one[rows] for one in (self.backward_N, self.moved_N, self.bytes_N))
        return ReplicaMessages(buckets=buckets, backward_N=backward, moved_N=moved, bytes_N=size)


def replica_messages(context: GraphContext, c: SplitCandidates, passes_NL: Floats, moved_NL: Floats) -> ReplicaMessages:
    """Return the gradients of every row's replica.

    ``passes_NL``, ``moved_NL``: seconds of the backward pass, by operator: computation of a device, and exchange
    between the parts of a replica.
    """
    backward_NL, sizes_NL = passes_NL + moved_NL, exchanged_bytes(context, c)
    return ReplicaMessages(
        buckets=fill(Filling.of(context.profile), sizes_NL, backward_NL),
        backward_N=added(backward_NL),
        moved_N=added(moved_NL),
        bytes_N=added(sizes_NL),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """Exchange of gradients between replicas, in seconds.

    ``whole_s``: the exchange, with the rendezvous of nodes; ``exposed_s``: its exposed part, and the time that its
    launches take from computation; ``straggler_wait_s``: wait for the slowest device.
    """

    whole_s: Floats
    exposed_s: Floats
    straggler_wait_s: Floats


def gradients(context: GraphContext, c: SplitCandidates, replica: ReplicaMessages, busy_N: Floats) -> Gradients:
    """Return the exchange of the gradients of every row's replicas; ``busy_N``: all computation of a step."""
    profile, messages = context.profile, replica.buckets
    spatial = c.is_mode(Mode.SPATIAL)
    ranks = c.replicas_N * np.where(spatial, c.parts_N, 1.0)
    spacing = np.where(spatial, 1.0, c.parts_N)
    stride = np.where(spatial, 1.0, replica_strides(context.cluster.levels, c))
    wire = wire_s(context, messages, ranks, stride)
    pace = np.where(spatial, 1.0, per_shape(c, lambda *shape: simultaneous_pace(context.cluster, *shape, across=True)))
    if np.any(pace != 1.0):
        latency = messages.sent_NB * reduce_s(context.cluster, np.ones(len(c)), ranks, stride, 1.0)[:, None]
        wire = at_pace(pace[:, None], wire, latency)
    launch_s = reduce_s(context.cluster, np.ones(len(c)), ranks, stride, profile.gradient_share)
    exchange_s, shown = hidden_exchange_s(context, messages, wire, replica.backward_N, launch_s)
    # Parts on several nodes exchange over the ports of gradients, which lengthens their exchange where both meet.
    away = c.parts_N * part_strides(context.cluster.levels, c) > context.cluster.devices_per_node
    away &= ~spatial | (profile.staged_bytes_per_s is None)
    met = np.array([_met(context, split) if meets else 0.0 for split, meets in zip(c.splits, away, strict=True)])
    shown = shown + profile.overlap * _shared_port_s(met, replica, exchange_s)
    if profile.staged_bytes_per_s is not None:
        # Parts of an image sum their gradients through host memory, like borders, to one of them and back.
        local = np.where(spatial & (c.parts_N > 1), 2.0 * replica.bytes_N / profile.staged_bytes_per_s, 0.0)
        exchange_s, shown = exchange_s + local, shown + local
    # The groups of a hybrid split use their common ports in turn.
    groups = np.where(c.is_mode(Mode.DATA), 1.0, np.minimum(c.parts_N, context.cluster.devices_per_node))
    several = (ranks > 1) & (not context.inference)
    rendezvous = np.where(several, rendezvous_s(profile, context.nodes(ranks * spacing), groups), 0.0)
    return Gradients(
        whole_s=np.where(several, exchange_s, 0.0) + rendezvous,
        exposed_s=np.where(several, shown, 0.0) + rendezvous,
        straggler_wait_s=straggler_wait_s(profile, busy_N, c.devices_N),
    )


def _shared_port_s(met_N: Floats, replica: ReplicaMessages, exchange_N: Floats) -> Floats:
    """Return the additional seconds of a step in which gradients meet the exchange between parts.

    ``met_N``: connections of gradients for every connection between parts (``_met``).
    """
    # While both send, a connection between parts has 1 / (1 + met) of the port and gradients have the rest. Per second
    # of the undisturbed pass, of which a share f is exchange between parts, the pass takes 1 + met f and gradients
    # progress by 1 - f + met f seconds, until they are sent or the pass ends.
    window = replica.backward_N - replica.buckets.ready_NB[:, 0]
    between = np.where(met_N > 0, replica.moved_N / np.maximum(replica.backward_N, _LEAST_S), 0.0)
    progress = np.maximum(1.0 - between + met_N * between, _LEAST_S)
    seconds = np.minimum(exchange_N / progress, window)
    alone = np.minimum(exchange_N, window)
    return np.asarray(met_N * between * seconds + alone - progress * seconds)


def _met(context: GraphContext, split: Split) -> float:
    """Return the connections of gradients for every connection between parts on a port that both use."""
    levels, node = context.cluster.levels, context.cluster.devices_per_node
    if split.mode is not Mode.SPATIAL:
        return rings_met(context.cluster, split.replicas, split.parts)
    ways = [way for pattern in halo_ways(levels, split.replicas, padded_grid(split)) for way, _ in pattern]
    return 1.0 / max((distance * share for distance, share in ways if distance >= node), default=1.0)


def wire_s(context: GraphContext, messages: Messages, ranks_N: Floats, stride_N: Floats) -> Floats:
    """Return the duration of every bucket's exchange, of shape [N, B], while all devices exchange.

    ``ranks_N``: replicas; ``stride_N``: their distance in devices.
    """
    wire = np.zeros(messages.bytes_NB.shape)
    row, bucket = np.nonzero(messages.bytes_NB)
    size, share = np.maximum(messages.bytes_NB[row, bucket], 1.0), context.profile.gradient_share
    wire[row, bucket] = reduce_s(context.cluster, size, ranks_N[row], stride_N[row], share)
    return wire


def hidden_exchange_s(
    context: GraphContext, messages: Messages, wire_NB: Floats, backward_N: Floats, launch_N: Floats
) -> tuple[Floats, Floats]:
    """Return the seconds of the buckets' exchange, and the part that ``backward_N`` seconds do not hide.

    ``launch_N``: seconds of an exchange without data.
    """
    profile = context.profile
    shown = exposed_s(messages, wire_NB, profile.blocked_share * launch_N, backward_N, context.cluster.overlap)
    exchange_s = added(wire_NB)
    return exchange_s, profile.overlap * shown + (1.0 - profile.overlap) * exchange_s


def exchanged_bytes(context: GraphContext, c: SplitCandidates) -> Floats:
    """Return the exchanged bytes of every operator's gradient between replicas, of shape [N, L]."""
    model, layers = context.model, context.layers
    every = layers.per_operator("parameters")
    table = layers.is_kind(Kind.EMBEDDING)
    cut = (c.is_mode(Mode.FILTER) | c.is_mode(Mode.CHANNEL)) & context.profile.shares_hybrid_weights
    parts = np.where(cut, c.parts_N, 1.0)[:, None]
    sizes = np.where(layers.weighted, every / parts, every)
    # Linear layers of a mixed split are divided over all replicas: no other device has their gradients.
    sizes = np.where(c.mixed_N[:, None] & layers.is_kind(Kind.LINEAR), 0.0, sizes)
    # Copied tables exchange only the gradients of looked-up rows, distributed tables none.
    rows = np.stack([context.sent_elements(operator, c.batch_N) for operator in model.operators], axis=1)
    sizes = np.where(table, np.where(c.spread_N[:, None], 0.0, rows), sizes)
    return np.asarray(sizes * GRADIENT_BYTES)
