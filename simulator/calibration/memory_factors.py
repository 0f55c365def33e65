"""The parts of a peak that measured runs may correct: their prior spreads, and the division of a peak."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.calibration.residual import Features, placed
from forerun.simulator.memory.peak import lost_bytes
from forerun.simulator.score_table import MEMORY_PARTS, Floats
from forerun.spaces.strategies import Context, StrategyTable


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFactor:
    """One factor: ``parts`` of the peak that it multiplies, and ``spread``, the standard deviation of its logarithm."""

    name: str
    title: str
    spread: float
    parts: tuple[str, ...]

    def factor(self, z: float) -> float:
        """Return the factor at ``z`` standard deviations from the catalogue."""
        return math.exp(self.spread * z)


FACTORS: tuple[MemoryFactor, ...] = (
    MemoryFactor(
        name="states",
        title="parameters, gradients and optimizer states",
        spread=0.05,
        parts=("parameters", "gradients", "optimizer"),
    ),
    MemoryFactor(name="activations", title="activations that are kept", spread=0.15, parts=("activations",)),
    MemoryFactor(
        name="workspace", title="working set of a layer and of the loss", spread=0.3, parts=("working", "logits")
    ),
    MemoryFactor(name="buffers", title="communication buffers", spread=0.4, parts=("buffers",)),
    MemoryFactor(name="fragmentation", title="reserved by the allocator, but unused", spread=0.6, parts=()),
    MemoryFactor(name="outside", title="device context and communicators", spread=0.3, parts=()),
)
"""All factors. The fifth is for reserved memory beyond live tensors, the last for memory outside the allocator."""
FACTOR_NAMES = tuple(factor.name for factor in FACTORS)
LIVE, INSIDE = 4, 5
"""Number of factors on live tensors, and on the allocator's memory."""


def held_bytes(context: Context, memory_bytes: Mapping[str, Floats]) -> Floats:
    """Return the bytes [N, 6] multiplied by each of ``FACTORS``; they sum to the device's peak."""
    profile, count = context.framework, len(memory_bytes["reserve"])
    outside = np.full(count, profile.context_bytes + profile.communicator_bytes)
    columns = [sum((memory_bytes[part] for part in factor.parts), np.zeros(count)) for factor in FACTORS[:LIVE]]
    return np.stack([*columns, np.maximum(memory_bytes["reserve"] - outside, 0.0), outside], axis=1)


def idle_bytes(context: Context, memory_bytes: Mapping[str, Floats]) -> Floats:
    """Return the allocator's idle bytes, shape N: the reserve that it frees before an allocation fails.

    The reserve includes the loss to activations of many sizes in pipelines (``pipeline_idle``): a caching allocator
    frees idle segments before it fails, as the outcomes of runs confirm (log loss 0.10 of the ultrascale sweep against
    0.13).
    """
    profile, none = context.framework, np.zeros(len(memory_bytes["reserve"]))
    live = sum((memory_bytes[part] for part in MEMORY_PARTS if part != "reserve"), none)
    lost = profile.context_bytes + profile.communicator_bytes + lost_bytes(profile, live, memory_bytes)
    return np.asarray(np.maximum(memory_bytes["reserve"] - lost, 0.0))


def memory_features(context: Context, table: StrategyTable, held: Floats) -> Features:
    """Return the features of every row: its axes, and the shares of its parts of memory."""
    return placed(context, table, held / held.sum(axis=1, keepdims=True))


def factor_values(z: Mapping[str, float]) -> Floats:
    """Return all factors, shape 6; 1 for factors without an entry in ``z``."""
    return np.array([factor.factor(z.get(factor.name, 0.0)) for factor in FACTORS])


def counted(kinds: NDArray[np.str_]) -> Floats:
    """Return 1 for every factor [N, 6] included in a measurement of each of ``kinds`` (shape N), otherwise 0."""
    columns = np.arange(len(FACTORS))[None, :]
    upto = np.where(kinds == "allocated", LIVE, np.where(kinds == "reserved", INSIDE, len(FACTORS)))
    return np.asarray((columns < upto[:, None]).astype(float))


def log_kind(held: Floats, kinds: NDArray[np.str_]) -> Floats:
    """Return the logarithms of peaks, shape N, as measured by each of ``kinds``; ``held``: bytes by factor, [N, 6]."""
    return np.asarray(np.log((held * counted(kinds)).sum(axis=1)))


def memory_slopes(held: Floats, kinds: NDArray[np.str_]) -> Floats:
    """Return the slopes [N, 6] of a peak's logarithm along the factors; arguments as for ``log_kind``."""
    counted_bytes = held * counted(kinds)
    return np.asarray(
        counted_bytes / counted_bytes.sum(axis=1, keepdims=True) * np.array([factor.spread for factor in FACTORS])
    )
