"""Bytes that one device sends in a step; everything else here counts seconds."""

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
    """``p2p_bytes``: what one tensor rank sends to the next stage per microbatch; per stage ``gradient_bytes`` that
    replicas add up, and ``shard_bytes``, the part of the parameters that each of them holds before they are gathered;
    ``tied_bytes``: gradient of a table that first and last stage share. ``scattered``: whether replicas are left with
    slices of the sum of gradients only."""

    p2p_bytes: int
    gradient_bytes: tuple[float, ...]
    shard_bytes: tuple[float, ...]
    tied_bytes: int
    scattered: bool


def step_sizes(context: Context, strategy: Strategy) -> StepSizes:
    """Return the bytes of a step under a strategy of one tp, which must be legal."""
    width = activation_bytes(context.workload.precision)
    tokens = strategy.mbs * context.workload.seq_len / strategy.cp
    parts = strategy.tp if strategy.sp or context.framework.scatters_p2p else 1
    assignment = assign(context, strategy)
    ((settings, held),) = by_replicas(assignment.blocks()).items()
    held_by_rank = parameters_with(context, settings, assignment.on_ranks(held))
    counts, tied = (held_by_rank.dense + held_by_rank.expert)[0], held_by_rank.tied[0]
    return StepSizes(
        p2p_bytes=max(round(tokens * context.model.hidden * width / parts), 1),
        gradient_bytes=tuple((counts * reduced_bytes(context)).tolist()),
        shard_bytes=tuple((counts * width / strategy.sharing).tolist()),
        tied_bytes=max(round(float(np.max(tied)) * reduced_bytes(context)), 1),
        scattered=strategy.zero > 0 and not context.framework.reduces_whole,
    )
