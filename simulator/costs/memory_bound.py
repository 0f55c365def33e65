"""Seconds of operators limited by memory traffic: norms, activations, softmax, loss, embedding, optimizer.

An operator is a table entry: bytes of traffic per element and kernels per pass, fused and eager. The bytes of a fused
operator follow from its definition (every tensor is read or written once); the bytes of the eager form are the traffic
of the framework's separate kernels, and agree with the measurements of ``operators_ett`` (A100, GH200) where noted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.simulator.costs.efficiency import device_efficiency
from forerun.spaces.clusters.device import Device
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

    element: str
    """Meaning of one element."""
    forward: StreamPass
    backward: StreamPass
    eager_forward: StreamPass
    eager_backward: StreamPass

    def one_pass(self, *, fused: bool, backward: bool) -> StreamPass:
        """Return the pass selected by ``fused`` and ``backward``."""
        if fused:
            return self.backward if backward else self.forward
        return self.eager_backward if backward else self.eager_forward


# Activations in 16 bit. ETT = measured bytes per element at full bandwidth share in operators_ett.
STREAM_OPERATORS: Mapping[str, StreamOperator] = {
    "layernorm": StreamOperator(
        element="value of the normalised tensor",
        # Read and write; the statistics pass reads again (ETT: 6.4 on both). Backward: x, dy for dx, both again for
        # the weight gradients (ETT: 10.0 on GH200, 20 on the older kernels of A100, kept as the eager form).
        forward=StreamPass(bytes_per_element=6),
        backward=StreamPass(bytes_per_element=10, kernels=2),
        eager_forward=StreamPass(bytes_per_element=6),
        eager_backward=StreamPass(bytes_per_element=20, kernels=3),
    ),
    "rmsnorm": StreamOperator(
        element="value of the normalised tensor",
        forward=StreamPass(bytes_per_element=4),
        backward=StreamPass(bytes_per_element=10, kernels=2),
        # Eager: cast to fp32, square, mean, multiply, cast, weight, each over it (ETT: 21 to 28, 102 to 117).
        eager_forward=StreamPass(bytes_per_element=24, kernels=6),
        eager_backward=StreamPass(bytes_per_element=109, kernels=14),
    ),
    "gelu": StreamOperator(
        element="value of the hidden layer of the MLP",
        # ETT: bound by arithmetic rather than memory on both devices.
        forward=StreamPass(bytes_per_element=4, math_per_element=1.0),
        backward=StreamPass(bytes_per_element=6, math_per_element=1.32),
        eager_forward=StreamPass(bytes_per_element=8, kernels=2, math_per_element=1.0),  # separate bias
        eager_backward=StreamPass(bytes_per_element=10, kernels=2, math_per_element=1.32),
    ),
    "swiglu": StreamOperator(
        element="value of the hidden layer of the MLP (the input has two)",
        forward=StreamPass(bytes_per_element=6),
        backward=StreamPass(bytes_per_element=10),
        eager_forward=StreamPass(bytes_per_element=10, kernels=2),  # silu 4, multiply 6
        eager_backward=StreamPass(bytes_per_element=26, kernels=4),  # multiply twice 12, silu 6, concatenate 8
    ),
    "clamped_swiglu": StreamOperator(
        element="value of the hidden layer of biased experts (the input has two)",
        # No kernel of Megatron-core fuses the activation of gpt-oss: both halves clamped (8), scaled, sigmoid,
        # multiplied (14), one added and multiplied (10), the router's weight in fp32 (12). Backward: twice that, and
        # the weight's gradient.
        forward=StreamPass(bytes_per_element=44, kernels=9),
        backward=StreamPass(bytes_per_element=110, kernels=20),
        eager_forward=StreamPass(bytes_per_element=44, kernels=9),
        eager_backward=StreamPass(bytes_per_element=110, kernels=20),
    ),
    "expert_bias": StreamOperator(
        element="value of the output of biased experts",
        # Weighted in fp32 and added expert by expert, joined and cast (Megatron-core's _apply_bias); backward: the
        # gradients of bias and weight.
        forward=StreamPass(bytes_per_element=28, kernels=4),
        backward=StreamPass(bytes_per_element=40, kernels=6),
        eager_forward=StreamPass(bytes_per_element=28, kernels=4),
        eager_backward=StreamPass(bytes_per_element=40, kernels=6),
    ),
    "softmax": StreamOperator(
        element="attention score",
        # Fused with scale and causal mask (ETT: 4.1 and 5.9 on A100).
        forward=StreamPass(bytes_per_element=4, math_per_element=0.85),
        backward=StreamPass(bytes_per_element=6, math_per_element=1.3),
        # Eager: mask fill 9, fp32 softmax with its casts 10 (ETT: 9 and 10); backward 35 and 14.
        eager_forward=StreamPass(bytes_per_element=19, kernels=4),
        eager_backward=StreamPass(bytes_per_element=49, kernels=6),
    ),
    "softmax_half": StreamOperator(
        element="attention score",
        # As softmax, but in 16 bit where it is eager: mask fill 9 and 35 as measured, softmax by definition.
        forward=StreamPass(bytes_per_element=4, math_per_element=0.85),
        backward=StreamPass(bytes_per_element=6, math_per_element=1.3),
        eager_forward=StreamPass(bytes_per_element=13, kernels=2),
        eager_backward=StreamPass(bytes_per_element=41, kernels=4),
    ),
    "dropout": StreamOperator(
        element="value of the tensor",
        # Write the value and a one-byte mask; backward reads both.
        forward=StreamPass(bytes_per_element=5),
        backward=StreamPass(bytes_per_element=5),
        eager_forward=StreamPass(bytes_per_element=5),
        eager_backward=StreamPass(bytes_per_element=5),
    ),
    "rope": StreamOperator(
        element="value of the queries and keys",
        forward=StreamPass(bytes_per_element=4),
        backward=StreamPass(bytes_per_element=4),
        # Eager: split, negate, concatenate, two products, sum (ETT: 18 to 32, 45 to 52).
        eager_forward=StreamPass(bytes_per_element=22, kernels=8),
        eager_backward=StreamPass(bytes_per_element=48, kernels=14),
    ),
    "residual_add": StreamOperator(
        element="value of the residual stream",
        # ETT: 6.0 on both. Backward: the sum of two gradients.
        forward=StreamPass(bytes_per_element=6),
        backward=StreamPass(bytes_per_element=6),
        eager_forward=StreamPass(bytes_per_element=6),
        eager_backward=StreamPass(bytes_per_element=6),
    ),
    "residual_dropout": StreamOperator(
        element="value of the residual stream",
        # Fused bias, dropout and add: read two, write one and a byte of mask.
        forward=StreamPass(bytes_per_element=7),
        backward=StreamPass(bytes_per_element=11, kernels=2),
        eager_forward=StreamPass(bytes_per_element=15, kernels=3),
        eager_backward=StreamPass(bytes_per_element=15, kernels=3),
    ),
    "cross_entropy": StreamOperator(
        element="logit of this rank's part of the vocabulary",
        # Fused: 16 bit logits read twice, the gradient written in place during forward.
        forward=StreamPass(bytes_per_element=6, kernels=2),
        backward=StreamPass(bytes_per_element=4),
        # Vocabulary-parallel in fp32 (Megatron): cast, maximum, subtract, exp, sum, divide; then
        # gradient and cast (ETT: 31 to 33, 10 to 11).
        eager_forward=StreamPass(bytes_per_element=32, kernels=8),
        eager_backward=StreamPass(bytes_per_element=10.5, kernels=3),
    ),
    "embedding": StreamOperator(
        element="value of the embedded tokens",
        # Gather: read, write. Backward: sorted scatter-add into fp32 (ETT: 15 at one rank, more when masked).
        forward=StreamPass(bytes_per_element=4),
        backward=StreamPass(bytes_per_element=10, kernels=4),
        eager_forward=StreamPass(bytes_per_element=14, kernels=4),  # out-of-range tokens masked to zero
        eager_backward=StreamPass(bytes_per_element=16, kernels=5),
    ),
    "cast": StreamOperator(
        element="value converted from 16 bit to 8 bit",
        # Read once, written along its rows and along its columns: the weight gradient reduces over the other dimension.
        forward=StreamPass(bytes_per_element=4),
        backward=StreamPass(bytes_per_element=4),
        eager_forward=StreamPass(bytes_per_element=6, kernels=2),
        eager_backward=StreamPass(bytes_per_element=6, kernels=2),
    ),
    "cast_scaled": StreamOperator(
        element="value converted from 16 bit to 8 bit with one scale for the whole tensor",
        # The largest value of the tensor is found first. Rows of aiconfigurator, which write one copy where two are
        # written here, fit 6.5 bytes on H100 and 6.0 on B200, B300, GB200 and GB300 (``benchmarks/fit``).
        forward=StreamPass(bytes_per_element=6, kernels=2),
        backward=StreamPass(bytes_per_element=6, kernels=2),
        eager_forward=StreamPass(bytes_per_element=8, kernels=3),
        eager_backward=StreamPass(bytes_per_element=8, kernels=3),
    ),
    "cast_blocks": StreamOperator(
        element="value converted from 16 bit to 8 bit with scales in fp32 for 128 values of a row and of a column",
        # A tile is read once, for its largest values and for both copies (Transformer Engine, Float8BlockScaling).
        forward=StreamPass(bytes_per_element=4.0625),
        backward=StreamPass(bytes_per_element=4.0625),
        eager_forward=StreamPass(bytes_per_element=6.0625, kernels=2),
        eager_backward=StreamPass(bytes_per_element=6.0625, kernels=2),
    ),
    "cast_rows": StreamOperator(
        element="value converted from 16 bit to 8 bit with a scale for each row and for each column",
        # A row is read once and written; columns are read for their largest values, and again (torchao, compiled).
        # Backward: Llama blocks (8B, 70B) on an H100 (torchao 0.18) take as much as 53 bytes a gradient beyond their
        # products, which includes slow sums and the transposes of columns of inputs and weights.
        forward=StreamPass(bytes_per_element=8, kernels=3),
        backward=StreamPass(bytes_per_element=53, kernels=9),
        eager_forward=StreamPass(bytes_per_element=10, kernels=4),
        eager_backward=StreamPass(bytes_per_element=55, kernels=10),
    ),
    "copy": StreamOperator(
        element="16 bit value read and written",
        forward=StreamPass(bytes_per_element=4),
        backward=StreamPass(bytes_per_element=4),
        eager_forward=StreamPass(bytes_per_element=4),
        eager_backward=StreamPass(bytes_per_element=4),
    ),
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

    Raises:
        RequestError: it does not exist; the message names the known ones.
    """
    if name not in STREAM_OPERATORS:
        raise unknown("memory-bound operator", name, STREAM_OPERATORS)
    return STREAM_OPERATORS[name]


def stream_operator_time_s(
    device: Device, name: str, elements: ArrayLike, *, fused: bool = True, backward: bool = False
) -> Floats:
    """Seconds of one pass of the operator ``name`` over ``elements`` elements (see ``StreamOperator.element``)."""
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
    fused: bool = True,
) -> Floats:
    """Seconds of one Adam or AdamW step over ``parameters`` parameters of this device.

    A step reads the gradient, reads and writes both moments (``state_bytes`` together) and the fp32 master weight, and
    writes the 16-bit weight; without master weights it reads and writes the weight in 16 bit. Eager steps (one kernel
    per term of the update, e.g. DeepSpeed's or PyTorch's for-loop form) move about three times as much.
    """
    overhead = 1.13  # operators_ett, A100: 34 bytes per parameter where the formula says 30
    weight_bytes = 8.0 + 2.0 if master_weights else 4.0
    once = gradient_bytes + 2 * state_bytes + weight_bytes
    eager_factor = 1.0 if fused else 3.0  # eight passes over fp32 terms instead of one over all

    def surface(parameters: ArrayLike) -> Floats:
        return memory_bound_time_s(device, np.asarray(parameters, dtype=np.float64) * once * overhead * eager_factor)

    if device.measured is None:
        return surface(parameters)
    name = f"adam {'master' if master_weights else 'plain'}"
    return device.measured.seconds(name, (np.asarray(parameters, dtype=np.float64),), surface)
