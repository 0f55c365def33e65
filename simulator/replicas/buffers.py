"""Buffers of replicas: gradient buckets, gathered parameters, and buffers of FSDP units and their streams.

Shapes: R runs of equal stages; D strategies with distinct replica costs.
"""

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.layer.shard import activation_bytes, parameter_bytes
from forerun.simulator.score_table import Floats
from forerun.simulator.stages.parameters import StageParameters
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.strategies import Context

MOST_SEGMENTS = 32
"""Limit of segments of one pass: frameworks have one per layer or bucket; with fewer, the last one is exposed."""
MOST_WHOLE = 3
"""Virtual stages of a device with gathered parameters at once. Source: torch.distributed.pipelining, schedules.py,
_add_unshard_reshard."""


def buffers(
    context: Context,
    counts: StageParameters,
    graded: Floats,
    *,
    zero: Floats,
    pp: Floats,
    virtual: Floats | float,
    ranks: Floats,
) -> dict[str, Floats]:
    """Compute the buffers of ``ReplicaCosts`` by name.

    Parameters
    ----------
    context
        The request.
    counts
        Parameters of the stages.
    graded
        Parameters with gradients, [R, D].
    zero, pp, virtual, ranks
        ZeRO stage, pipeline ranks, virtual stages of a device, and replicas, shape D each.
    """
    profile = context.framework
    wide = parameter_bytes(context)[1]
    parameters = counts.dense + counts.expert
    layers = max(context.model.layer_count, 1) / pp
    gathered_bytes = np.where(zero == 3, parameters * wide, 0.0)
    each = np.where(stays_whole(profile, pp), gathered_bytes / virtual, 0.0)
    if profile.unit_parameters:
        gathered, backward, end, *streams = _unit_bytes(context, counts, zero, layers)
    else:
        # Two layers: the current one and the one gathered ahead.
        live = np.minimum(parameters, profile.live_parameters) * wide
        gathered = np.where(zero == 3, np.maximum(2 * gathered_bytes / layers, live), 0.0)
        backward = end = np.zeros_like(gathered)
        streams = [end, end]
    still_whole = np.maximum(each - gathered - backward, 0.0)
    gathered = gathered + (np.minimum(virtual, MOST_WHOLE) - 1) * each
    buckets = profile.bucket_copies * bucket_bytes(context, ranks) + profile.bucket_gradient_bytes * graded
    return {
        "buffer_bytes": gathered + np.where(ranks > 1, buckets, 0.0) + _scratch_bytes(context, counts.shapes),
        "backward_bytes": backward,
        "end_bytes": end,
        "whole_bytes": still_whole,
        "gather_stream_bytes": streams[0],
        "reduce_stream_bytes": streams[1],
    }


def _unit_bytes(context: Context, counts: StageParameters, zero: Floats, layers: Floats) -> tuple[Floats, ...]:
    """Compute the buffers of units, [R, D] each.

    The result has the permanent buffers, further ones during a layer's backward pass, further ones at its end, and the
    peak allocations of the gather and the reduction stream.
    """
    # A layer is a unit; embedding and head (the ends) together are another. The last layer and, unless they are dropped
    # after the forward pass, the ends are gathered at the loss. The backward pass has the ends, the next layer, a third
    # layer where it is copied out of its gather buffer, the gradients of a layer and their reduction buffer. The
    # gradients of the ends are reduced at its end.
    profile, width = context.framework, activation_bytes(context.workload.precision)
    cut, reduced = zero == 3, zero >= 2
    inside = (counts.dense + counts.expert - counts.outside) / layers
    layer = np.where(cut, inside * parameter_bytes(context)[1], 0.0)
    ends = np.where(cut, counts.outside * width, 0.0)
    graded = np.where(reduced, width + reduced_bytes(context), 0.0)
    always = layer + (0.0 if profile.drops_ends else ends)
    further = (2 if profile.unit_parameters == "each" else 1) * layer + (ends if profile.drops_ends else 0.0)
    end = graded * counts.outside + (ends if profile.drops_ends else 0.0)
    reduction = np.where(reduced, reduced_bytes(context) * np.maximum(inside, counts.outside), 0.0)
    return always, further + graded * inside, end, np.maximum(layer, ends), reduction


def _scratch_bytes(context: Context, shapes: Floats) -> Floats:
    """Return the bytes that matrix products allocate.

    The bytes are scratch memory of libraries and, where products add directly to the gradient buffer, one unused
    gradient per shape of a weight (autograd requires a tensor).
    """
    profile = context.framework
    kept = profile.dummy_gradients and profile.fused_accumulation
    dummies = shapes * activation_bytes(context.workload.precision) if kept else np.zeros_like(shapes)
    return np.asarray(dummies + profile.workspace_bytes)


def stays_whole(profile: FrameworkProfile, pp: Floats | NDArray[np.int64]) -> NDArray[np.bool_]:
    """Check whether parameters stay gathered from a backward pass to the next forward pass of their virtual stage.

    torch.distributed.pipelining disables FSDP's work after a backward pass, resharding as well as reduction, until the
    last one (stage.py, backward_maybe_with_nosync).
    """
    return np.asarray((profile.gradient_sync == "pipeline") & (np.asarray(pp) > 1))


def reduced_bytes(context: Context) -> float:
    """Return the bytes per parameter of the gradients that replicas exchange."""
    half = activation_bytes(context.workload.precision) == 2.0
    return context.framework.reduce_bytes if half else 4.0


def bucket_bytes(context: Context, ranks: Floats) -> Floats:
    """Return the bytes of gradients or parameters in one collective over some ranks."""
    return np.maximum(context.framework.bucket_bytes, context.framework.bucket_rank_bytes * ranks)


def gradient_buckets(context: Context, parameters: Floats | float, ranks: Floats) -> Floats:
    """Return the number of buckets (at least 1) that reduce the gradients of some parameters over some ranks."""
    width = context.framework.bucket_width_bytes or reduced_bytes(context)
    return np.asarray(np.maximum(np.round(parameters * width / bucket_bytes(context, ranks)), 1.0))
