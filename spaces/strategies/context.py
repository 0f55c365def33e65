"""The context of a strategy: facts about model, cluster, workload and framework for the laws."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.clusters.cluster import Cluster, Overlap
from forerun.spaces.frameworks.profile import FrameworkProfile
from forerun.spaces.frameworks.recipes import agreed
from forerun.spaces.models.model import Attention, MixtureOfExperts, Model
from forerun.spaces.models.parts import matrices
from forerun.spaces.strategies.axes import Software
from forerun.spaces.strategies.table import StrategyTable
from forerun.spaces.workload import Workload

_BEFORE_FLASH = ("Kepler", "Pascal", "Volta", "Turing")
_COMPILED = ("TPU", "Trainium")
"""Architectures whose programs XLA compiles under any framework. Memory-bound operators are fused, and the host
launches a step as one program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMemory:
    """Peak memory of N strategies corrected by measured runs, shape N each."""

    parts: Mapping[str, NDArray[np.float64]]
    """Bytes by ``MEMORY_PARTS``."""
    oom_risk: NDArray[np.float64]
    """OOM risk (0 to 1)."""
    limit_bytes: NDArray[np.float64]
    """Limit of each peak."""


class Correction(Protocol):
    """Corrections from measured runs in addition to a context's constants (``forerun.simulator.calibration``)."""

    def factor(
        self, context: "Context", table: StrategyTable, time_s: Mapping[str, NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Return a factor on the step time of every row of ``table``, given the parts of its predicted time."""

    def memory(
        self, context: "Context", table: StrategyTable, memory_bytes: Mapping[str, NDArray[np.float64]]
    ) -> HeldMemory | None:
        """Return the peak memory of every row of ``table``, given its predicted parts; None without measured memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One request without its strategy."""

    model: Model
    cluster: Cluster
    workload: Workload
    framework: FrameworkProfile
    correction: Correction | None = None
    """None unless the context was calibrated to measured runs."""
    memory_share: float = 1.0
    """Share (0 to 1) of device memory up to which a strategy fits."""
    oom_risk: float | None = None
    """Highest OOM risk, if the user limited it. ``memory_share`` is its equivalent without measured runs."""
    free_software: Software = Software.NONE
    """Switches that a search turns on where they pay."""

    @property
    def memory_limit_bytes(self) -> float:
        """Bytes of one device that a strategy may use."""
        return self.memory_share * self.cluster.device.memory_bytes

    @property
    def overlap(self) -> Overlap:
        """Mutual slowdown of computation and replica traffic, from the cluster and the framework."""
        machine = self.cluster.overlap
        return replace(machine, computation=machine.computation * self.framework.overlap_slowdown)

    @property
    def on_groups(self) -> tuple["Context", ...]:
        """The same request on each group of a cluster with different nodes, as if the group were the cluster."""
        return tuple(replace(self, cluster=group.cluster) for group in self.cluster.groups)

    def in_precision(self, precision: str | None) -> "Context":
        """Return the same request in another precision; None: unchanged."""
        if precision is None:
            return self
        framework, agreed_on = agreed(self.framework, precision, ())
        return replace(self, framework=framework, workload=replace(self.workload, precision=agreed_on))

    @property
    def heads(self) -> int:
        """Largest number that divides the query heads of every layer."""
        return math.gcd(*(layer.mixer.heads for layer in self.model.layers if layer.mixer is not None)) or 1

    @property
    def kv_heads(self) -> int:
        """Largest number that divides the key/value heads of every layer (all heads where keys are latent)."""
        counts = (
            mixer.heads if isinstance(mixer, Attention) and mixer.latent else mixer.kv_heads
            for mixer in (layer.mixer for layer in self.model.layers)
            if mixer is not None
        )
        return math.gcd(*counts) or 1

    @property
    def experts(self) -> int:
        """Largest number that divides the experts of every mixture layer; 1 for dense models."""
        counts = [layer.mlp.experts for layer in self.model.layers if isinstance(layer.mlp, MixtureOfExperts)]
        return math.gcd(*counts) if counts else 1

    @property
    def attention(self) -> str:
        """Attention kernel in use.

        The kernel is the profile's, or a fused softmax over all scores on devices before Ampere, which FlashAttention 2
        and its successors do not support (its README).
        """
        kernel = self.framework.attention
        older = self.cluster.device.architecture.startswith(_BEFORE_FLASH)
        return "fused_softmax" if older and kernel.startswith("flash") else kernel

    @property
    def compiled(self) -> bool:
        """Whether every program of the device is compiled in full (XLA)."""
        return self.cluster.device.architecture.startswith(_COMPILED)

    @property
    def eager(self) -> tuple[str, ...]:
        """Memory-bound operators that run as several kernels: the profile's, none in compiled programs."""
        return () if self.compiled else self.framework.eager

    @property
    def head_layers(self) -> float:
        """Matrix work of the language-model head relative to the first layer, in the estimate of frameworks.

        Heads that share keys count in full (nanotron's ``get_block_compute_costs``).
        """
        layer, hidden = self.model.layers[0], self.model.hidden
        mlp = layer.mlp
        columns = 0.0
        if isinstance(layer.mixer, Attention):
            columns += 4 * layer.mixer.heads * layer.mixer.head_dim
        elif layer.mixer is not None:
            columns += sum(matrices(layer.mixer.steps(hidden))) / hidden
        if mlp is not None:
            inner = mlp.top_k * mlp.expert_hidden if isinstance(mlp, MixtureOfExperts) else mlp.hidden
            columns += (3 if mlp.gated else 2) * inner
        return self.model.vocab * hidden / (hidden * columns)

    @property
    def moe(self) -> bool:
        """Whether any layer has routed experts."""
        return any(isinstance(layer.mlp, MixtureOfExperts) for layer in self.model.layers)


class InContext(Protocol):
    """A result with its context."""

    @property
    def context(self) -> Any: ...


def by_context(runs: Sequence[InContext], rows: Iterable[int] | None = None) -> list[list[int]]:
    """Return the indices of runs (None: all) with the same context, in order of first appearance."""
    groups: dict[int, list[int]] = {}
    for row in range(len(runs)) if rows is None else rows:
        groups.setdefault(id(runs[row].context), []).append(int(row))
    return list(groups.values())
