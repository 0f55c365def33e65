"""Activation memory of every pipeline rank, by the core's closed forms for the schedule."""

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.assignment.passes import group_of, shard_with
from forerun.simulator.assignment.value import Assignment, Blocks
from forerun.simulator.memory.peak import StageMemory, activation_memory
from forerun.simulator.score_table import Floats
from forerun.spaces.schedules.catalogue import schedule_of
from forerun.spaces.schedules.interleaved import peak_in_flight_factor
from forerun.spaces.strategies import Strategy


def rank_activations(assignment: Assignment, blocks: Blocks) -> StageMemory:
    """Return the activation memory of ``blocks`` [B, C] on every rank, [1, P] each."""
    in_flight_factors = _in_flight_factors(assignment)
    first, *others = (
        _with_settings(assignment, settings, assignment.on_ranks(held), in_flight_factors)
        for settings, held in blocks.items()
    )
    return reduce(StageMemory.beside, others, first)


def _with_settings(assignment: Assignment, settings: Strategy, on: Floats, in_flight_factors: Floats) -> StageMemory:
    """Return the activation memory of layers ``on`` [B, P] ranks with the same settings."""
    shape, count = assignment.shape, assignment.shape.pp
    given = (float(assignment.schedule), float(shape.pp), float(shape.vpp), float(shape.microbatches))
    schedule, pp, vpp, microbatches = (np.full(count, value) for value in given)
    same: NDArray[np.intp] = np.zeros(count, dtype=np.intp)
    rank = np.arange(count, dtype=np.float64)[None, :]
    shard = shard_with(assignment.context, settings)
    return activation_memory(
        assignment.context,
        shard,
        same,
        on[:, None, :],
        rank,
        schedule,
        pp,
        vpp,
        microbatches,
        in_flight_factors,
        group=group_of(settings),
    )


def _in_flight_factors(assignment: Assignment) -> Floats:
    """Return the peak of in-flight activations on every rank relative to equal virtual stages, [1, P]."""
    pp, counts = assignment.shape.pp, assignment.layer_counts
    if not schedule_of(assignment.schedule).in_rounds or len(set(counts)) == 1:
        return np.ones((1, pp))
    ahead = assignment.shape.ahead
    return np.array([[peak_in_flight_factor(counts[rank::pp], pp, rank, ahead) for rank in range(pp)]])
