"""Bytes that one device sends in a step (other modules of this package count seconds)."""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.replicas import parameters_with
from forerun.simulator.assignment.value import by_replicas
from forerun.simulator.layer.shard import activation_bytes
from forerun.simulator.replicas.buffers import reduced_bytes
from forerun.spaces.strategies import Context, Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSizes:
    """Bytes of a step.

    ``p2p_bytes``: sent by one tensor rank to the next stage per microbatch. Per stage, ``gradient_bytes``: gradients
    that replicas sum; ``shard_bytes``: shard of the parameters that a device stores before the gather. ``tied_bytes``:
    gradient of a table shared by the first and last stage. ``scattered``: replicas keep only slices of the sum of
    gradients.
    """

    p2p_bytes: int
    gradient_bytes: tuple[float, ...]
    shard_bytes: tuple[float, ...]
    tied_bytes: int
    scattered: bool


def step_sizes(context: Context, strategy: Strategy) -> StepSizes:
    """Return the bytes of a step under a legal strategy with one tp."""
    width = activation_bytes(context.workload.precision)
    tokens = strategy.mbs * context.workload.seq_len / strategy.cp
    parts = strategy.tp if strategy.sp or context.framework.scatters_p2p else 1
    assignment = assign(context, strategy)
    ((settings, blocks),) = by_replicas(assignment.blocks()).items()
    held_by_rank = parameters_with(context, settings, assignment.on_ranks(blocks))
    counts, tied = (held_by_rank.dense + held_by_rank.expert)[0], held_by_rank.tied[0]
    return StepSizes(
        p2p_bytes=max(round(tokens * context.model.hidden * width / parts), 1),
        gradient_bytes=tuple((counts * reduced_bytes(context)).tolist()),
        shard_bytes=tuple((counts * width / strategy.sharing).tolist()),
        tied_bytes=max(round(float(np.max(tied)) * reduced_bytes(context)), 1),
        scattered=strategy.zero > 0 and not context.framework.reduces_whole,
    )
