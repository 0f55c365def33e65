"""Seconds and bytes of one microbatch on every virtual stage, computed once per distinct setting and summed."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.assignment.value import Blocks
from forerun.simulator.layer.known_times import known_block_times
from forerun.simulator.layer.shard import Shard, shard_of
from forerun.simulator.layer.times import BLOCK_PARTS, host_passes_s, unpaired_share
from forerun.simulator.memory.peak import activation_memory
from forerun.simulator.score_table import Floats
from forerun.spaces.strategies import Context, Schedule, Strategy, offload_of, table_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPasses:
    """Seconds and bytes of C virtual stages on one microbatch, shape C each, as in ``ChunkCost`` and
    ``StageMemory``."""

    forward_s: Floats
    """Device seconds, without waits for the host."""
    backward_s: Floats
    """Device seconds, without waits for the host."""
    weight_s: Floats
    host_forward_s: Floats
    """Host seconds of launches."""
    host_backward_s: Floats
    """Host seconds of launches."""
    parts: Mapping[str, Floats]
    """Device seconds by kind."""
    kept_bytes: Floats
    logit_bytes: Floats
    held_logit_bytes: Floats
    working_bytes: Floats

    @property
    def beside_loss_bytes(self) -> Floats:
        """Bytes that the backward pass of a layer needs in addition to the loss."""
        return np.maximum(self.held_logit_bytes + self.working_bytes - self.logit_bytes, 0.0)

    def __add__(self, other: "ChunkPasses") -> "ChunkPasses":
        """Add the costs of layers of both settings; only one layer is recomputed at a time."""
        added: dict[str, object] = {
            entry.name: getattr(self, entry.name) + getattr(other, entry.name)
            for entry in fields(ChunkPasses)
            if entry.name not in ("parts", "working_bytes")
        }
        added["parts"] = {part: self.parts[part] + other.parts[part] for part in BLOCK_PARTS}
        added["working_bytes"] = np.maximum(self.working_bytes, other.working_bytes)
        return ChunkPasses(**added)  # type: ignore[arg-type]  # its own fields


def group_of(settings: Strategy) -> Floats | None:
    """Return the number of layers recomputed at once, [1]; None where each is recomputed alone."""
    return np.array([float(settings.recompute_group)]) if settings.recompute_group > 1 else None


def shard_with(context: Context, settings: Strategy) -> Shard:
    """Return the shard of layers with some settings: a table of one."""
    shard = shard_of(context, table_of([settings]), np.zeros(1, dtype=np.intp))
    return replace(shard, away=np.array([offload_of(context.framework, settings.stage_offload).activations]))


def chunk_passes(context: Context, blocks: Blocks) -> ChunkPasses:
    """Return the costs of ``blocks`` [B, C] with all their settings on every virtual stage."""
    first, *others = (_with_settings(context, settings, held) for settings, held in blocks.items())
    return sum(others, first)


def _with_settings(context: Context, settings: Strategy, held: Floats) -> ChunkPasses:
    """Return the costs of layers ``held`` [B, C] with equal settings on every virtual stage."""
    shard, count = shard_with(context, settings), held.shape[1]
    times = known_block_times(context, shard)
    recompute = np.full(count, int(settings.recompute))
    tp = np.full(count, float(settings.tp))
    host_forward_s, host_backward_s = host_passes_s(context, held[:-2], recompute, tp, float(settings.pp))
    key: NDArray[np.intp] = np.zeros(count, dtype=np.intp)
    one = np.ones(count)
    alone_s = np.zeros((2, len(held)))
    if times.alone_s is not None:
        microbatches = context.workload.global_batch / (settings.dp * settings.mbs)
        schedule, pp, count_m = (np.array([float(x)]) for x in (settings.schedule, settings.pp, microbatches))
        alone_s = np.stack(times.alone_s)[:, :, 0] * unpaired_share(schedule, pp, count_m)
    parts = {part: times.parts[part][:, 0] for part in BLOCK_PARTS}
    parts["expert"] = parts["expert"] + alone_s[0] + alone_s[1]
    # The last stage of 1F1B has one microbatch in flight.
    memory = activation_memory(
        context,
        shard,
        key,
        held[:, None, :],
        one[None, :] * 0.0,
        one * Schedule.ONE_F_ONE_B,
        one,
        one,
        one,
        group=group_of(settings),
    )
    return ChunkPasses(
        forward_s=(times.forward_s[:, 0] + alone_s[0]) @ held,
        backward_s=(times.backward_s[:, 0] + alone_s[1]) @ held,
        weight_s=times.weight_s[:, 0] @ held,
        host_forward_s=host_forward_s,
        host_backward_s=host_backward_s,
        # Stage by stage: a matrix product would sum in another order next to other stages.
        parts={part: np.array([each @ held[:, chunk] for chunk in range(count)]) for part, each in parts.items()},
        kept_bytes=memory.kept[0],
        logit_bytes=memory.logits[0],
        held_logit_bytes=memory.held_logits[0],
        working_bytes=memory.working[0],
    )
