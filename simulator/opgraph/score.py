"""Step time with its phases, and memory, of many splits of an operator graph."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.opgraph.candidates import Candidates, candidates_of
from forerun.simulator.opgraph.compute import Local
from forerun.simulator.opgraph.context import GraphContext, own_input_s, stored_input_s
from forerun.simulator.opgraph.dealing import fullest_tables
from forerun.simulator.opgraph.exchange import Exchange, exchanges, tails
from forerun.simulator.opgraph.gradients import Gradients, gradients
from forerun.simulator.opgraph.layers import Floats, added
from forerun.simulator.opgraph.memory import RESERVE_BYTES, graph_memory, held_by, peak_bytes
from forerun.simulator.opgraph.stages import Stages, pipeline_stages
from forerun.simulator.score_table import ScoreTable
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
    tail = tails(context, c)
    stages = pipeline_stages(context, c)
    moved = exchanges(context, c, tail)
    forward_NL, backward_NL, repeated_s = _device_s(context, c, tail)
    host = _host_s(context, c, moved)
    device = added(forward_NL + backward_NL) * c.segments_N
    forward_NL, backward_NL = context.paced(forward_NL, backward_NL, host / c.segments_N)
    pipeline = c.is_mode(Mode.PIPELINE)
    memory_of = held_by(context, c, stages.fullest)
    forward_s = np.where(pipeline, stages.forward_s, added(forward_NL) * c.segments_N)
    backward_s = np.where(pipeline, stages.backward_s, added(backward_NL) * c.segments_N)
    # Gradients are hidden by the backward pass of the last segment, including its exchange between parts.
    exchanged = gradients(context, c, memory_of, backward_NL, moved.back_NL, forward_s + backward_s)
    phases = _phases(forward_s, backward_s, moved, exchanged, stages)
    # Samples load during the preceding step: only loading beyond its duration adds time.
    phases["input"] = np.maximum(_loading_s(context, c) - np.asarray(sum(phases.values())), 0.0)
    memory = graph_memory(context, c, memory_of)
    peak = peak_bytes(memory)
    return SplitScores(
        step_time_s=np.asarray(sum(phases.values())),
        time_s=phases,
        peak_memory_bytes=peak,
        allocated_bytes=peak - RESERVE_BYTES,
        memory_bytes=memory,
        peak_stage=np.zeros(len(c), dtype=np.int64),
        fits=np.asarray(peak <= context.memory_limit_bytes),
        hidden_s=np.maximum(np.where(pipeline, stages.exchange_s, exchanged.whole_s) - phases["gradient"], 0.0),
        repeated_s=np.where(pipeline, 0.0, repeated_s),
        device_s=np.where(pipeline, forward_s + backward_s, device),
        host_s=host,
    )


def _phases(
    forward: Floats, backward: Floats, moved: Exchange, exchanged: Gradients, stages: Stages
) -> dict[str, Floats]:
    pipeline = stages.forward_s > 0
    return {
        "forward": forward,
        "backward": backward,
        "halo": moved.halo_s,
        "collective": moved.collective_s,
        "tail": moved.tail_s,
        "p2p": stages.p2p_s,
        "bubble": stages.bubble_s,
        "gradient": np.where(pipeline, stages.exposed_s, exchanged.exposed_s),
        "straggler wait": np.where(pipeline, stages.straggler_wait_s, exchanged.straggler_wait_s),
        "update": np.where(pipeline, stages.update_s, exchanged.update_s),
    }


def _device_s(context: GraphContext, c: Candidates, tail: Floats) -> tuple[Floats, Floats, Floats]:
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
    kept = np.where(c.is_mode(Mode.PIPELINE), 0.0, c.segments_N)
    repeated_s = added(np.where((repeated | unsplit) & (c.parts_N > 1)[:, None], forward + backward, 0.0))
    return forward, backward, repeated_s * kept


def _is_stored(context: GraphContext, devices: int) -> NDArray[np.bool_]:
    """Mark the tables of the fullest of some devices."""
    names = {table.name for table in fullest_tables(context.model, devices)}
    return np.array([operator.name in names for operator in context.model.operators])


def _host_s(context: GraphContext, c: Candidates, moved: Exchange) -> Floats:
    """Host seconds of a step: every operator and collective once per direction, and the pieces of gathered tensors."""
    return context.issued_s(c.segments_N, moved.calls_N) + moved.pieces_N * context.profile.piece_host_s


def _loading_s(context: GraphContext, c: Candidates) -> Floats:
    """Seconds to load the samples of a step onto the devices, during the preceding step."""
    parts = np.where(c.is_mode(Mode.SPATIAL), c.parts_N, 1.0)
    host_s = own_input_s(context, c.batch_N / c.replicas_N / parts)
    return np.asarray(np.maximum(host_s, stored_input_s(context, c.batch_N / context.nodes(c.devices_N))))
