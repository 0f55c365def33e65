"""Step time with its phases, and memory, of many splits of an operator graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.opgraph.candidates import SplitCandidates, candidates_of
from forerun.simulator.opgraph.compute import Local
from forerun.simulator.opgraph.context import GraphContext, own_input_s, stored_input_s
from forerun.simulator.opgraph.dealing import fullest_tables
from forerun.simulator.opgraph.exchange import exchanges, tails
from forerun.simulator.opgraph.gradients import gradients, replica_messages
from forerun.simulator.opgraph.groups import per_shape
from forerun.simulator.opgraph.layers import Floats, added
from forerun.simulator.opgraph.memory import RESERVE_BYTES, Held, graph_memory, held_by, peak_bytes
from forerun.simulator.opgraph.shared_ports import distinct_places
from forerun.simulator.opgraph.stages import cuts_of, pipeline_stages
from forerun.simulator.score_table import ScoreTable, joined
from forerun.spaces.opgraph import Kind
from forerun.spaces.opgraph.split import Mode, Split

PHASES = (
    "forward",
    "backward",
    "halo",
    "collective",
    "tail",
    "p2p",
    "bubble",
    "gradient",
    "straggler wait",
    "update",
    "input",
)
"""Parts of a step in the order of output. ``forward`` and ``backward`` are computation (host included), ``halo`` to
``p2p`` communication between layers, ``gradient`` the exposed exchange, ``straggler wait`` the wait for the slowest
device, ``input`` the additional time of loading."""

AT_ONCE = 1 << 18
"""Operators of distinct cuts and replicas that are costed at once, 2 MiB an array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitScores(ScoreTable):
    """Scores of N splits.

    ``hidden_s``: gradient exchange hidden by the backward pass; ``repeated_s``: device seconds of work that all parts
    of a replica repeat; ``device_s`` and ``host_s``: duration of the computation limited only by the device or only by
    the host. Parts of a step are ``PHASES``.
    """

    hidden_s: Floats
    repeated_s: Floats
    device_s: Floats
    host_s: Floats


def score_splits(context: GraphContext, splits: Sequence[Split], batches: Sequence[int]) -> SplitScores:
    """Score ``splits``, each with its global batch, without a check of laws (``limits.broken_laws``)."""
    c = candidates_of(splits, batches)
    pipeline = c.is_mode(Mode.PIPELINE)
    most = max(1, AT_ONCE // len(context.model.operators))
    parts, places = list[SplitScores](), list[NDArray[np.intp]]()
    for mask, distinct, scored in ((pipeline, cuts_of, _pipelines), (~pipeline, _replicas_of, _replicated)):
        rows = np.flatnonzero(mask)
        _, which = distinct(context, c.take(rows))
        for low in range(0, int(which.max(initial=-1)) + 1, most):
            places.append(rows[(which >= low) & (which < low + most)])
            parts.append(scored(context, c.take(places[-1])))
    scores = joined(parts, np.argsort(np.concatenate(places)))
    assert isinstance(scores, SplitScores)
    return scores


def _pipelines(context: GraphContext, c: SplitCandidates) -> SplitScores:
    """Score pipelines of whole layers."""
    stages = pipeline_stages(context, c)
    phases = {
        "forward": stages.forward_s,
        "backward": stages.backward_s,
        "p2p": stages.p2p_s,
        "bubble": stages.bubble_s,
        "gradient": stages.exposed_s,
        "straggler wait": stages.straggler_wait_s,
        "update": stages.update_s,
    }
    device_s, host_s = stages.forward_s + stages.backward_s, context.issued_s(c.segments_N)
    return _scores(context, c, phases, stages.fullest, (stages.exchange_s, np.zeros(len(c)), device_s, host_s))


def _replicated(context: GraphContext, c: SplitCandidates) -> SplitScores:
    """Score splits whose devices all compute the same operators."""
    first, which = _replicas_of(context, c)
    one = c.take(first)
    tail = tails(context, one)
    moved = exchanges(context, one, tail)
    forward_KL, backward_KL, repeated_K = _device_s(context, one, tail)
    host_K = context.issued_s(one.segments_N, moved.calls_N) + moved.pieces_N * context.profile.piece_host_s
    device_K = added(forward_KL + backward_KL) * one.segments_N
    forward_KL, backward_KL = context.paced(forward_KL, backward_KL, host_K / one.segments_N)
    forward, backward = ((added(passes) * one.segments_N)[which] for passes in (forward_KL, backward_KL))
    held = held_by(context, one).take(which)
    # Gradients are hidden by the backward pass of the last segment, including its exchange between parts.
    messages = replica_messages(context, one, backward_KL, moved.back_NL).take(which)
    exchanged = gradients(context, c, messages, forward + backward)
    phases = {
        "forward": forward,
        "backward": backward,
        "halo": moved.halo_s[which],
        "collective": moved.collective_s[which],
        "tail": moved.tail_s[which],
        "gradient": exchanged.exposed_s,
        "straggler wait": exchanged.straggler_wait_s,
        "update": context.update_s(held.dense_N),
    }
    return _scores(
        context, c, phases, held, (exchanged.whole_s, *(values[which] for values in (repeated_K, device_K, host_K)))
    )


def _replicas_of(context: GraphContext, c: SplitCandidates) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first row of every distinct replica, and the replica of every row."""
    # Replicas beyond those whose positions on the links repeat change only the exchange of gradients.
    replicas = np.where(
        c.mixed_N | c.spread_N, c.replicas_N, per_shape(c, lambda *shape: distinct_places(context.cluster, *shape))
    )
    columns = (c.mode_N, c.parts_N, *c.grid_NA.T, c.segments_N, c.local_N, replicas, c.mixed_N, c.spread_N)
    return c.distinct(*columns, c.batch_N * bool(context.model.tables))


def _scores(
    context: GraphContext, c: SplitCandidates, phases: Mapping[str, Floats], held: Held, seconds: Sequence[Floats]
) -> SplitScores:
    """Return scores of rows with all ``phases`` but loading.

    ``seconds``: exchange of gradients, repeated work, computation of the device and of the host.
    """
    exchange_s, repeated_s, device_s, host_s = seconds
    time_s = {name: phases.get(name, np.zeros(len(c))) for name in PHASES}
    # Samples load during the preceding step: only loading beyond its duration adds time.
    time_s["input"] = np.maximum(_loading_s(context, c) - np.asarray(sum(time_s.values())), 0.0)
    rest = {"repeated_s": repeated_s, "device_s": device_s, "host_s": host_s}
    return split_scores(context, time_s, graph_memory(context, c, held), exchange_s, **rest)


def split_scores(
    context: GraphContext,
    time_s: Mapping[str, Floats],
    memory_bytes: Mapping[str, Floats],
    exchange_s: Floats,
    **seconds: Floats,
) -> SplitScores:
    """Return the scores of rows with all phases and parts of memory.

    ``exchange_s``: the entire exchange of gradients; ``seconds``: further columns of ``SplitScores``.
    """
    peak = peak_bytes(memory_bytes)
    return SplitScores(
        step_time_s=np.asarray(sum(time_s.values())),
        time_s=time_s,
        peak_memory_bytes=peak,
        allocated_bytes=peak - RESERVE_BYTES,
        memory_bytes=memory_bytes,
        peak_stage=np.zeros(len(peak), dtype=np.int64),
        fits=np.asarray(peak <= context.memory_limit_bytes),
        hidden_s=np.maximum(exchange_s - time_s["gradient"], 0.0),
        **seconds,
    )


def _device_s(context: GraphContext, c: SplitCandidates, tail: Floats) -> tuple[Floats, Floats, Floats]:
    """Device seconds forward and backward of every operator for one segment, and seconds per step that all parts
    repeat.
    """
    layers = context.layers
    batch = c.local_N
    ones = np.ones(len(c))
    cut = Local(
        batch_K=batch,
        grid_KA=c.grid_NA,
        filters_K=np.where(c.is_mode(Mode.FILTER), c.parts_N, ones),
        channels_K=np.where(c.is_mode(Mode.CHANNEL), c.parts_N, ones),
    )
    split, undivided = context.times(cut), context.times(Local.whole(batch))
    position = np.arange(len(layers.kind_of_L))
    repeated = position >= tail[:, None]  # a spatial tail
    # Channels of the model's input (three of an image) are too few to split.
    repeated = repeated | (c.is_mode(Mode.CHANNEL)[:, None] & layers.first)
    unsplit = (c.is_mode(Mode.FILTER) | c.is_mode(Mode.CHANNEL))[:, None] & ~layers.weighted
    forward, backward = (
        np.where(repeated, one[:, layers.kind_of_L], other[:, layers.kind_of_L])
        for one, other in ((undivided.forward_KU, split.forward_KU), (undivided.backward_KU, split.backward_KU))
    )
    if np.any(c.mixed_N):
        everything = context.times(
            Local(
                batch_K=c.local_N * c.replicas_N,
                grid_KA=np.ones_like(c.grid_NA),
                filters_K=c.replicas_N,
                channels_K=ones,
            )
        )
        # Data-parallel convolutions and classifiers split by filter: each device has its filters for all samples.
        linear = c.mixed_N[:, None] & layers.is_kind(Kind.LINEAR)
        forward = np.where(linear, everything.forward_KU[:, layers.kind_of_L], forward)
        backward = np.where(linear, everything.backward_KU[:, layers.kind_of_L], backward)
    if np.any(c.spread_N):
        # The fullest device looks up the rows of its tables for all samples.
        everything = context.times(Local.whole(c.local_N * c.replicas_N))
        stored = {count: _is_stored(context, int(count)) for count in set(c.replicas_N)}
        shares = np.array([stored[count] for count in c.replicas_N])
        table = c.spread_N[:, None] & layers.is_kind(Kind.EMBEDDING)
        forward = np.where(table, shares * everything.forward_KU[:, layers.kind_of_L], forward)
        backward = np.where(table, shares * everything.backward_KU[:, layers.kind_of_L], backward)
    repeated_s = added(np.where((repeated | unsplit) & (c.parts_N > 1)[:, None], forward + backward, 0.0))
    return forward, backward, repeated_s * c.segments_N


def _is_stored(context: GraphContext, devices: int) -> NDArray[np.bool_]:
    """Mark the tables of the fullest of some devices."""
    names = {table.name for table in fullest_tables(context.model, devices)}
    return np.array([operator.name in names for operator in context.model.operators])


def _loading_s(context: GraphContext, c: SplitCandidates) -> Floats:
    """Seconds to load the samples of a step onto the devices, during the preceding step."""
    parts = np.where(c.is_mode(Mode.SPATIAL), c.parts_N, 1.0)
    host_s = own_input_s(context, c.batch_N / c.replicas_N / parts)
    return np.asarray(np.maximum(host_s, stored_input_s(context, c.batch_N / context.nodes(c.devices_N))))
