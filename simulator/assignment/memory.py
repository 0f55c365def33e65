"""Peak memory of every pipeline rank of an assignment, by the same rules as the peak of a candidate.

The vectorised core keeps only the fullest of a few representative stages; reports and events need all ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from forerun.simulator.assignment.activations import rank_activations
from forerun.simulator.assignment.host import rank_replicas
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.value import Assignment
from forerun.simulator.memory.peak import TotalMemory, total_memory
from forerun.simulator.replicas.reduction import ReplicaCosts
from forerun.simulator.score_table import MEMORY_PARTS, Floats
from forerun.spaces.strategies import Context, Strategy, table_of


def stage_memory(assignment: Assignment, replicas: ReplicaCosts | None = None) -> TotalMemory:
    """Return the peak memory of every rank on its own group of devices, shape P each.

    ``replicas``: the result of ``rank_replicas``, if already computed.

    Raises
    ------
    RequestError
        A cost rule does not know an operator, link or precision.
    """
    if len(assignment.contexts) > 1:
        each = [stage_memory(assignment.on_group(group)) for group in range(len(assignment.contexts))]
        own = assignment.group_of_rank
        parts = {part: _picked([memory.parts[part] for memory in each], own) for part in MEMORY_PARTS}
        names = [entry.name for entry in fields(TotalMemory) if entry.name != "parts"]
        return TotalMemory(
            parts=parts, **{name: _picked([getattr(memory, name) for memory in each], own) for name in names}
        )
    ranks = np.arange(assignment.shape.pp)
    activations = rank_activations(assignment, assignment.blocks())
    costs = rank_replicas(assignment) if replicas is None else replicas
    return total_memory(assignment.context, activations, ranks, costs, ranks)


def _picked(on_groups: Sequence[Any], group_of_rank: Sequence[int]) -> Any:
    """Return the values of every rank, chosen from the values of all ranks on each group."""
    return np.array([on_groups[group][rank] for rank, group in enumerate(group_of_rank)])


def memory_by_stage(context: Context, strategy: Strategy) -> tuple[Mapping[str, float], ...]:
    """Return the bytes of every pipeline rank of a legal strategy by ``MEMORY_PARTS``.

    The bytes of the fullest rank equal the result of ``score``, also with memory calibrated to runs.

    Raises
    ------
    RequestError
        As for ``score``.
    """
    parts: Mapping[str, Floats] = stage_memory(assign(context, strategy)).parts
    if context.correction is not None:
        held = context.correction.memory(context, table_of([strategy] * strategy.pp), parts)
        parts = parts if held is None else held.parts
    return tuple({part: float(parts[part][rank]) for part in MEMORY_PARTS} for rank in range(strategy.pp))


def cached_bytes(context: Context, strategy: Strategy) -> float:
    """Return the bytes reserved by the fullest rank's allocator beyond its peak (``TotalMemory.cached_bytes``).

    Raises
    ------
    RequestError
        As for ``score``.
    """
    if not context.framework.unit_parameters:
        return 0.0
    memory = stage_memory(assign(context, strategy))
    fullest = int(np.argmax(memory.peak_bytes))
    room = context.cluster.device.memory_bytes - memory.peak_bytes[fullest]
    return float(np.clip(memory.cached_bytes[fullest], 0.0, max(room, 0.0)))
