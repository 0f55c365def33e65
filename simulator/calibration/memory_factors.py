"""The factors on parts of a peak that measured runs may move, with what is thought of them before any run."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFactor:
    """One factor: on which ``parts`` of the peak it acts, and its ``spread`` (standard deviation of its logarithm)."""

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
    MemoryFactor(name="fragmentation", title="what the allocator holds without using it", spread=0.6, parts=()),
    MemoryFactor(name="outside", title="device context and communicators", spread=0.3, parts=()),
)
"""All factors. The fifth acts on what is reserved beyond live tensors, the last on what lies outside the allocator."""
FACTOR_NAMES = tuple(factor.name for factor in FACTORS)
