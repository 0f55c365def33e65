"""Seconds of operators limited by memory traffic: norms, activations, softmax, loss, embedding, optimizer.

An operator is an entry of ``data/stream_operators.yaml``: bytes of traffic per element and kernels per pass, fused and
eager.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.simulator.costs.efficiency import device_efficiency
from forerun.spaces.clusters.device import Device
from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.errors import unknown

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPass:
    """One pass of a memory-bound operator."""

    bytes_per_element: float
    """Bytes moved by reads and writes."""
    kernels: int = 1
    """Number of launches."""
    math_per_element: float = 0.0
    """Arithmetic in units of one erf-GELU, for arithmetic-bound operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOperator:
    """Both passes of an operator, fused (one kernel where possible) and eager (one per framework call)."""

    forward: StreamPass
    backward: StreamPass
    eager_forward: StreamPass
    eager_backward: StreamPass

    def one_pass(self, *, fused: bool, backward: bool) -> StreamPass:
        """Return the pass selected by ``fused`` and ``backward``."""
        if fused:
            return self.backward if backward else self.forward
        return self.eager_backward if backward else self.eager_forward


@functools.cache
def stream_operators() -> Mapping[str, StreamOperator]:
    """Return the operators of ``data/stream_operators.yaml`` by name."""
    table: dict[str, dict[str, Any]] = package_yaml("forerun.simulator.costs", "data", "stream_operators.yaml")
    return {
        name: StreamOperator(**{key: StreamPass(**one) for key, one in entry.items()}) for name, entry in table.items()
    }


LAUNCH_S = 9e-6
"""Launch of one kernel by the host of an H100 system. SimuMax's grouped products on B200 take no less per expert."""


def memory_bound_time_s(
    device: Device, bytes_moved: ArrayLike, *, elements: ArrayLike = 0.0, kernels: ArrayLike = 1
) -> Floats:
    """Seconds of ``kernels`` kernels that together move ``bytes_moved`` bytes, without the host's launches.

    ``elements``: arithmetic in units of one erf-GELU (``StreamPass.math_per_element``). The slower of memory and
    arithmetic counts. Arguments broadcast; empty work takes no time.
    """
    stream = device_efficiency(device).stream
    bytes_moved, elements = np.asarray(bytes_moved, dtype=np.float64), np.asarray(elements, dtype=np.float64)
    # time = max(bytes / bandwidth, evaluations / (units rate)) + kernels x fixed.
    memory = bytes_moved / (device.memory_bytes_per_s * stream.memory_share)
    arithmetic = elements / (device.compute_units * stream.elements_per_unit_s)
    fixed = np.asarray(kernels, dtype=np.float64) * stream.fixed_s
    seconds: Floats = np.where(bytes_moved > 0, np.maximum(memory, arithmetic) + fixed, 0.0)
    return seconds


def passes_time_s(device: Device, bytes_moved: ArrayLike) -> Floats:
    """Seconds of operators that are passes over their tensors, by ``memory_bound_time_s`` or as measured."""
    if device.measured is None:
        return memory_bound_time_s(device, bytes_moved)
    shape = (np.asarray(bytes_moved, dtype=np.float64),)
    return device.measured.seconds("pass", shape, lambda size: memory_bound_time_s(device, size))


def launched_s(device: Device, kernels: ArrayLike) -> Floats:
    """Seconds of ``kernels`` small kernels after a wait for the device, which take less than their launch.

    The host cannot run ahead, so the device has the host's pace.
    """
    return np.asarray(kernels, dtype=np.float64) * LAUNCH_S / device.host_speed


def stream_operator(name: str) -> StreamOperator:
    """Return the operator called ``name``.

    Raises
    ------
    RequestError
        It does not exist; the message names the known ones.
    """
    if name not in stream_operators():
        raise unknown("memory-bound operator", name, stream_operators())
    return stream_operators()[name]


def stream_operator_time_s(
    device: Device, name: str, elements: ArrayLike, *, fused: bool = True, backward: bool = False
) -> Floats:
    """Seconds of one pass of the operator ``name`` over ``elements`` elements (the table says of what)."""
    one = stream_operator(name).one_pass(fused=fused, backward=backward)

    def surface(elements: ArrayLike) -> Floats:
        values = np.asarray(elements, dtype=np.float64)
        return memory_bound_time_s(
            device, values * one.bytes_per_element, elements=values * one.math_per_element, kernels=one.kernels
        )

    if device.measured is None:
        return surface(elements)
    which = f"stream {name} {'fused' if fused else 'eager'} {'backward' if backward else 'forward'}"
    return device.measured.seconds(which, (np.asarray(elements, dtype=np.float64),), surface)


def adam_time_s(
    device: Device,
    parameters: ArrayLike,
    *,
    gradient_bytes: float = 4.0,
    master_weights: bool = True,
    state_bytes: float = 8.0,
) -> Floats:
    """Seconds of one Adam or AdamW step over ``parameters`` parameters of this device.

    A step reads the gradient, reads and writes both moments (``state_bytes`` together) and the fp32 master weight, and
    writes the 16-bit weight; without master weights it reads and writes the weight in 16 bit. The kernel is fused: one
    kernel per term of the update (the for-loop form of DeepSpeed or PyTorch) would move about three times as much.
    """
    # bytes per parameter = gradient + 2 x states (read and written) + weights.
    overhead = 1.13  # operators_ett, A100: 34 bytes per parameter where the formula says 30
    weight_bytes = 8.0 + 2.0 if master_weights else 4.0
    once = gradient_bytes + 2 * state_bytes + weight_bytes

    def surface(parameters: ArrayLike) -> Floats:
        return memory_bound_time_s(device, np.asarray(parameters, dtype=np.float64) * once * overhead)

    if device.measured is None:
        return surface(parameters)
    name = f"adam {'master' if master_weights else 'plain'}"
    return device.measured.seconds(name, (np.asarray(parameters, dtype=np.float64),), surface)
