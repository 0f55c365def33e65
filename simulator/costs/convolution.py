"""Seconds of convolutions on a device: implicit matrix products with the fitted surface of ``gemm``.

A convolution is the product [batch x output pixels, channels x window] by [channels x window, filters] whose left
matrix is never materialised (Chetlur et al., "cuDNN", arXiv 1410.0759, section 3), so its traffic is that of the
tensors. The weight gradient has a small output and a long sum, which the library splits over the compute units and sums
afterwards. Small convolutions leave units idle, and do not shrink with the number of devices.
"""

from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.simulator.costs.efficiency import device_efficiency
from forerun.simulator.costs.gemm import INPUT_BYTES, gemm_surface_s
from forerun.spaces.clusters.device import Device
from forerun.spaces.errors import unknown

Floats = NDArray[np.float64]
Direction = Literal["forward", "data_gradient", "weight_gradient"]

DIRECTIONS = ("forward", "data_gradient", "weight_gradient")

SPLITS = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of parts of a product's sum, each a group."""

WINOGRAD_GAIN = 2.25
"""Multiplications of a 3x3 window relative to its minimal filtering F(2x2, 3x3). The ratio is 36 to 16 (Lavin and Gray,
arXiv 1509.09308, section 4.1). Libraries use it for fp32, where multiplications are the bottleneck: published VGG-16
rates on P100 and V100 are 1.4 times the peak."""

TENSOR_SHARE = 0.58
"""Speed of convolutions on matrix units relative to plain products, since windows are gathered meanwhile. Published
one-GPU rates of VGG-16, which is nearly all convolutions: V100 fp16 456 images/s, A100 tf32 503 and fp16 1190
(LambdaColdStorage/lambda-tensorflow-benchmark); the prediction with plain products is 735, 899 and 1804."""

ADDRESSING = 1.36
"""Instructions per multiplication for windows larger than a point, whose addresses are computed. There are about 36
integer instructions per 100 of floating point (NVIDIA Turing architecture white paper, mean of rendering workloads;
equality for convolutions is an assumption checked on published rates of K80 and P100). Since Volta both issue in
parallel."""
_ONE_ISSUE = ("Kepler", "Maxwell", "Pascal")
"""Architectures on which both share their issue slots (ibid.)."""

WINOGRAD_CHANNELS = 16
"""Below this many channels or filters the transforms cost more than they save (ibid., section 4.3)."""


def convolution_time_s(
    device: Device,
    precision: str,
    direction: Direction,
    *,
    batch: ArrayLike,
    channels: ArrayLike,
    filters: ArrayLike,
    window: ArrayLike,
    input_pixels: ArrayLike,
    output_pixels: ArrayLike,
    groups: ArrayLike = 1,
    axes: ArrayLike = 2,
    winograd: ArrayLike = False,
) -> Floats:
    """Seconds of one direction of a convolution, without the host's launch; arguments broadcast.

    ``channels`` and ``filters``: of the entire layer; ``groups``: independent parts of the channels; ``window``: volume
    of the kernel; ``input_pixels`` and ``output_pixels``: spatial volumes of one sample. ``winograd``: the window is
    3x3 with stride and dilation 1, and its arithmetic may be reduced. A linear layer is a convolution of one pixel.
    ``axes``: spatial axes (0: a linear layer), part of the key of measured shapes. Empty work takes no time.

    Raises
    ------
    RequestError
        The device does not have the precision, or ``precision`` or ``direction`` is unknown.
    """
    if precision not in INPUT_BYTES:
        raise unknown("precision", precision, INPUT_BYTES)
    if direction not in DIRECTIONS:
        raise unknown("direction", direction, DIRECTIONS)
    # Numbers of a measured shape are at least 1.
    extents = (batch, channels, filters, window, input_pixels, output_pixels, groups)
    values = (*extents, np.asarray(axes) + 1, np.asarray(winograd) + 1)
    shape = tuple(np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in values)))
    surface = partial(_surface_s, device, precision, direction)
    if device.measured is None:
        return surface(*shape)
    return device.measured.seconds(f"conv {direction} {precision}", shape, surface)


def _surface_s(
    device: Device,
    precision: str,
    direction: Direction,
    b: Floats,
    c: Floats,
    f: Floats,
    w: Floats,
    pixels_in: Floats,
    pixels_out: Floats,
    g: Floats,
    axes: Floats,
    reducible: Floats,
) -> Floats:
    """Return the seconds by the fitted constants, for shapes in the form of measured ones.

    In this form ``axes`` and ``reducible`` arithmetic are increased by one.
    """
    # Per group forward is [b pixels, c w] x [c w, f] (im2col), the weight gradient [f, b pixels] x [b pixels, c w].
    # time = joined(2 m n k g / rate, (inputs + outputs + weights) / bandwidth) + fixed.
    m, n, k = _product(direction, b, c / g, f / g, w, pixels_in, pixels_out)
    compute = _product_s(device, precision, direction, m, n, k, g)
    if np.any(g > 1):
        # Groups of few channels do not fill a tile: libraries have direct kernels for them, which compute on vector
        # units (used by cuDNN and PyTorch for depthwise convolutions).
        direct = 2.0 * m * n * k * g / device.peak_flops_per_s.get("fp32", device.peak(precision))
        compute = np.where(g > 1, np.minimum(compute, direct), compute)
    reduced = (precision == "fp32") & (reducible > 1) & (np.minimum(c, f) / g >= WINOGRAD_CHANNELS)
    compute = compute / np.where(reduced, WINOGRAD_GAIN, 1.0)
    if device.architecture.startswith(_ONE_ISSUE):
        compute = compute * np.where((w > 1) & ~reduced, ADDRESSING, 1.0)
    elements = b * (c * pixels_in + f * pixels_out) + c * f / g * w
    share = device_efficiency(device).stream.memory_share
    traffic = elements * max(INPUT_BYTES[precision], 2.0) / (device.memory_bytes_per_s * share)
    fixed_s = device_efficiency(device).stream.fixed_s
    return np.asarray(np.where(m * n * k > 0, _joined(compute, traffic) + fixed_s, 0.0), dtype=np.float64)


def _product(
    direction: str, b: Floats, c: Floats, f: Floats, w: Floats, pixels_in: Floats, pixels_out: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return rows, columns and sum of the product of one group. All three directions have equal operations."""
    if direction == "forward":
        return b * pixels_out, f, c * w
    if direction == "data_gradient":
        # With a stride, fewer windows include an input pixel.
        return b * pixels_in, c, f * w * pixels_out / np.maximum(pixels_in, 1.0)
    return f, c * w, b * pixels_out


def _product_s(device: Device, precision: str, direction: str, m: Floats, n: Floats, k: Floats, g: Floats) -> Floats:
    """Return the seconds of the arithmetic with the best division of the sum, including the sum of its parts."""
    efficiency = device_efficiency(device)
    width = "fp8" if INPUT_BYTES[precision] < 2 and "fp8" in efficiency.gemm else "half"
    surface = efficiency.gemm[width]
    # Clocks fall under the load of matrix units; fp32 leaves them idle.
    share = 1.0 if precision == "fp32" else TENSOR_SHARE * efficiency.sustained_clock[width]
    rate = device.peak(precision) * device.compute_share * share
    kind = "forward" if direction == "forward" else "data_gradient"
    best: Floats | None = None
    for parts in SPLITS:
        seconds = gemm_surface_s(
            surface,
            m,
            n,
            np.maximum(k / parts, 1.0),
            groups=g * parts,
            kind=kind,
            flops_per_s=rate / (surface.grouped_share if parts > 1 else 1.0),  # one kernel, not a grouped product
            bytes_per_s=np.inf,
            compute_units=device.compute_units,
            input_bytes=INPUT_BYTES[precision],
        )
        if parts > 1:
            moved = 2 * 4.0 * parts * m * n * g
            seconds = seconds + moved / (device.memory_bytes_per_s * efficiency.stream.memory_share)
        best = seconds if best is None else np.minimum(best, seconds)
    assert best is not None
    return np.asarray(best - surface.fixed_s, dtype=np.float64)


def _joined(one: Floats, other: Floats) -> Floats:
    """Join two times that overlap, but not fully when they are similar: the norm of order four, as for products."""
    one_squared, other_squared = one * one, other * other
    return np.asarray(np.sqrt(np.sqrt(one_squared * one_squared + other_squared * other_squared)))
