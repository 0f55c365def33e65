"""Seconds of operators on one device, as frozen records that add and scale (after JAX's roofline, ``roofline.py``).

A record is one operator in one direction; a ``Work`` is the sum over the operators of a layer. Shapes: K distinct
shards of a layer (``Shard``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from forerun.simulator.costs import device_efficiency
from forerun.simulator.score_table import Floats
from forerun.spaces.clusters.device import Device
from forerun.spaces.strategies import Recompute

Direction = Literal["forward", "input_gradient", "weight_gradient"]
Bound = Literal["tensor cores", "memory", "launch"]
Kind = Literal["product", "attention", "stream"]
"""Rule of ``simulator/costs`` for an operator."""

_TOO_SMALL = 0.1
"""Share of the nearer peak below which a kernel is limited by latency, not throughput. All of 500 passes with at least
2 % of a step (five models of 8 to 671 billion parameters, 4,096 tokens, four clusters) are predicted above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """One operator in one direction, shape K or a scalar each.

    Records of one operator and direction can be added; a record times a number is that number of them.
    """

    name: str
    """Name in the list of ``explain``."""
    direction: Direction
    seconds: Floats | float
    """Its duration."""
    matrix_s: Floats | float = 0.0
    """Seconds of its operations at the dense peak of the tensor cores, a bound that is never reached."""
    memory_s: Floats | float = 0.0
    """Seconds of its bytes at the peak of the device's memory, likewise."""
    kernels: Floats | float = 1.0
    """Number of launches, all of one ``kind``."""
    kind: Kind = "stream"
    core: bool = False
    """Whether it is the core of attention, whose passes overlap communication."""
    repeated: bool = False
    """Whether selective recompute repeats it."""
    not_recomputed: bool = False
    """Whether full recompute ends before it."""
    modules: Recompute = Recompute.NONE
    """Modules whose own recompute repeats it."""

    def __add__(self, other: "OperatorTime") -> "OperatorTime":
        """Return the sum of both, named like the first."""
        return replace(
            self,
            seconds=self.seconds + other.seconds,
            matrix_s=self.matrix_s + other.matrix_s,
            memory_s=self.memory_s + other.memory_s,
            kernels=self.kernels + other.kernels,
        )

    def __mul__(self, count: Floats | float) -> "OperatorTime":
        """Return ``count`` of them."""
        return replace(
            self,
            seconds=self.seconds * count,
            matrix_s=self.matrix_s * count,
            memory_s=self.memory_s * count,
            kernels=self.kernels * count,
        )

    def at(self, shard: int) -> "OperatorTime":
        """Return the record of one of K shards, as scalars."""
        seconds, matrix_s, memory_s, kernels = (
            float(values if np.ndim(values) == 0 else np.asarray(values)[shard])
            for values in (self.seconds, self.matrix_s, self.memory_s, self.kernels)
        )
        return replace(self, seconds=seconds, matrix_s=matrix_s, memory_s=memory_s, kernels=kernels)

    def share_of_peak(self) -> Floats:
        """Return the share of the nearer peak (tensor cores or memory bandwidth); 0 without work."""
        nearest = np.maximum(self.matrix_s, self.memory_s)
        return np.asarray(nearest / np.where(self.seconds > 0, self.seconds, 1.0))

    def bound(self, device: Device) -> Bound:
        """Return the bound of the record (of scalars): launch, or the nearer peak.

        The bound is the launch where the start and end of kernels take more than half of the time, or where they are
        too small to approach any peak.
        """
        starting = float(self.kernels) * self._start_s(device) > float(self.seconds) / 2
        if starting or float(self.share_of_peak()) < _TOO_SMALL:
            return "launch"
        return "tensor cores" if float(self.matrix_s) >= float(self.memory_s) else "memory"

    def _start_s(self, device: Device) -> float:
        """Return the seconds in which a kernel of its kind starts and ends on the device."""
        found = device_efficiency(device)
        if self.kind == "attention":
            return (found.attention_forward if self.direction == "forward" else found.attention_backward).fixed_s
        return found.gemm["half"].fixed_s if self.kind == "product" else found.stream.fixed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Device seconds of a sequence of operators, shape K each."""

    forward_s: Floats
    input_gradient_s: Floats
    weight_gradient_s: Floats
    core_s: Floats
    """Forward pass of the attention core."""
    repeated_s: Floats
    """The part of ``forward_s`` that selective recompute repeats."""
    not_recomputed_s: Floats
    """The part of ``forward_s`` that full recompute does not repeat."""
    modules_s: Mapping[Recompute, Floats]
    """The part of ``forward_s`` that recompute of each module repeats."""

    @property
    def backward_s(self) -> Floats:
        """Both gradients."""
        return self.input_gradient_s + self.weight_gradient_s


def work_of(operators: Iterable[OperatorTime], count: int) -> Work:
    """Return the sums of some operators over ``count`` shards, in order."""
    marks = ("core", "repeated", "not_recomputed")
    total = {name: np.zeros(count) for name in ("forward", "input_gradient", "weight_gradient", *marks)}
    modules: dict[Recompute, Floats] = {}
    for one in operators:
        total[one.direction] += one.seconds
        if one.direction == "forward":
            for name in marks:
                if getattr(one, name):
                    total[name] += one.seconds
            for module in one.modules:
                modules[module] = modules.get(module, np.zeros(count)) + one.seconds
    return Work(**{f"{name}_s": seconds for name, seconds in total.items()}, modules_s=modules)


def joined_by_name(operators: Iterable[OperatorTime]) -> list[OperatorTime]:
    """Return one record for each operator and direction, in order of first appearance."""
    found: dict[tuple[str, Direction], OperatorTime] = {}
    for one in operators:
        key = (one.name, one.direction)
        found[key] = found[key] + one if key in found else one
    return list(found.values())
