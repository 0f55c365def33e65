"""Seconds of a matrix product on a device: tiles in waves over the compute units, or bytes over the memory bus.

Tiling and waves follow NVIDIA's "Matrix Multiplication Background User's Guide"; the constants of each device are
fitted (see ``efficiency``). Every term grows with m, n and k and shrinks with the peaks of the device, and the best
tile is a minimum over such terms, so the result is monotone in all of them by construction.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.simulator.costs.efficiency import GemmEfficiency, device_efficiency
from forerun.spaces.clusters.device import Device
from forerun.spaces.errors import unknown

Floats = NDArray[np.float64]

GemmKind = Literal["forward", "data_gradient", "weight_gradient", "weight_gradient_half", "weight_gradient_added"]

# Bytes per element of an operand, with the scales of block formats (mxfp8, fp4: one byte per 32; nvfp4: one per 16).
INPUT_BYTES = {
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "mxfp8": 1 + 1 / 32,
    "fp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
}

# Fitted surface of a precision. mxfp8 and 4 bit have no published sweep: they use the shares of fp8.
_SURFACE = {name: "half" if size >= 2 else "fp8" for name, size in INPUT_BYTES.items()}

# Rate of 4-bit over 8-bit products in training. Peaks promise 2 (B200) and 3 (B300), but Llama 8B, 70B and 405B in
# NVFP4 take the same time on both: 1.6 leaves no error by device (MLPerf and Megatron-Bridge, 14 runs on five systems).
FOUR_BIT_GAIN = 1.6

# Bytes per element of the output: written once in at least 16 bit, or read and written in a main gradient of 32 or
# 16 bit.
_OUTPUT_BYTES: dict[str, float] = {
    "forward": 2.0,
    "data_gradient": 2.0,
    "weight_gradient": 8.0,
    "weight_gradient_half": 2.0,
    "weight_gradient_added": 4.0,
}


def gemm_time_s(
    device: Device,
    precision: str,
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    *,
    groups: ArrayLike = 1,
    kind: GemmKind = "forward",
) -> Floats:
    """Seconds of ``groups`` products C[m, n] += A[m, k] B[k, n] in one kernel, without the host's launch.

    ``m``, ``n``, ``k`` and ``groups`` broadcast; m, n, k are those of the computed product, so the weight gradient of a
    layer [tokens, in] -> [tokens, out] is (out, in, tokens). ``weight_gradient`` accumulates into fp32 main gradients
    (8 bytes of traffic per element), ``weight_gradient_added`` into 16-bit ones (4 bytes); ``weight_gradient_half``
    writes 16 bit. An empty product takes no time.

    Raises
    ------
    RequestError
        The device does not have the precision, or ``kind`` or ``precision`` is unknown.
    """
    if precision not in INPUT_BYTES:
        raise unknown("precision", precision, INPUT_BYTES)
    if kind not in _OUTPUT_BYTES:
        raise unknown("matrix product", kind, _OUTPUT_BYTES)
    efficiency = device_efficiency(device)
    width = _SURFACE[precision] if _SURFACE[precision] in efficiency.gemm else "half"

    def surface(m: ArrayLike, n: ArrayLike, k: ArrayLike, groups: ArrayLike) -> Floats:
        return gemm_surface_s(
            efficiency.gemm[width],
            m,
            n,
            k,
            groups=groups,
            kind=kind,
            flops_per_s=_peak(device, precision) * efficiency.sustained_clock[width] * device.compute_share,
            bytes_per_s=device.memory_bytes_per_s,
            compute_units=device.compute_units,
            input_bytes=INPUT_BYTES[precision],
        )

    if device.measured is None:
        return surface(m, n, k, groups)
    shape = tuple(np.asarray(value, dtype=np.float64) for value in (m, n, k, groups))
    return device.measured.seconds(f"gemm {kind} {precision}", shape, surface)


def gemm_bytes(
    precision: str, m: ArrayLike, n: ArrayLike, k: ArrayLike, *, groups: ArrayLike = 1, kind: GemmKind = "forward"
) -> Floats:
    """Return the bytes moved by the products of ``gemm_time_s``: each operand read once, the output written."""
    m, n, k, groups = (np.asarray(value, dtype=np.float64) for value in (m, n, k, groups))
    return _traffic_bytes(m, n, k, groups, kind, INPUT_BYTES[precision])


def _traffic_bytes(
    m: Floats,
    n: Floats,
    k: Floats,
    groups: Floats,
    kind: str,
    input_bytes: float,
) -> Floats:
    return np.asarray(groups * (input_bytes * k * (m + n) + max(_OUTPUT_BYTES[kind], input_bytes) * m * n))


def _peak(device: Device, precision: str) -> float:
    """Return the peak operations per second of a precision, for 4 bit at most its gain over 8 bit."""
    if INPUT_BYTES[precision] < 1:
        return min(device.peak(precision), FOUR_BIT_GAIN * device.peak("fp8"))
    return device.peak(precision)


def gemm_surface_s(
    surface: GemmEfficiency,
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    *,
    groups: ArrayLike,
    kind: str,
    flops_per_s: float,
    bytes_per_s: float,
    compute_units: int,
    input_bytes: float,
) -> Floats:
    """Return the seconds from given constants, shared by ``gemm_time_s`` and the fit.

    ``input_bytes``: bytes of one element; other arguments as for ``gemm_time_s``.
    """
    m, n, k, groups = (np.asarray(value, dtype=np.float64) for value in (m, n, k, groups))
    # time = (compute^4 + memory^4)^(1/4) + fixed: the parts overlap, less so when they are equally long.
    share = np.where(groups > 1, surface.grouped_share, 1.0) * _kind_share(surface, kind)
    rate = flops_per_s * surface.peak_share * share
    compute = _tiled_s(surface, m, n, k, groups, rate / compute_units, compute_units)
    memory = _traffic_bytes(m, n, k, groups, kind, input_bytes) / (bytes_per_s * surface.memory_share)
    seconds: Floats = np.where(m * n * k * groups > 0, _overlapped(compute, memory) + surface.fixed_s, 0.0)
    return seconds


def _overlapped(one: Floats, other: Floats) -> Floats:
    """Join two times that overlap, but not fully when they are similar: the norm of order four."""
    # Products and square roots are rounded exactly, so the result does not depend on the length of the array.
    one_squared, other_squared = one * one, other * other
    joined: Floats = np.sqrt(np.sqrt(one_squared * one_squared + other_squared * other_squared))
    return joined


def _kind_share(surface: GemmEfficiency, kind: str) -> float:
    if kind == "weight_gradient":
        return surface.weight_gradient_share
    return 1.0 if kind == "forward" else surface.data_gradient_share


def _tiled_s(
    surface: GemmEfficiency,
    m: Floats,
    n: Floats,
    k: Floats,
    groups: Floats,
    unit_flops_per_s: Floats,
    compute_units: int,
) -> Floats:
    """Return the seconds of the inner loops with the best tile (the first axis inside), one tile per unit at a time."""
    first = (-1, *(1,) * max(m.ndim, n.ndim, groups.ndim, np.ndim(unit_flops_per_s)))
    rows, columns, share = (np.reshape(each, first) for each in zip(*surface.tiles, strict=True))
    # Tiles of r x c: w = groups ceil(m / r) ceil(n / c) / units waves; a share h of the last, partly filled wave counts
    # in full: w + h (ceil(w) - w). Seconds = waves 2 r c (k + ramp) / (share rate), with the best tile.
    waves = groups * np.ceil(m / rows) * np.ceil(n / columns) / compute_units
    waves = waves + surface.wave_hardness * (np.ceil(waves) - waves)
    waves_s = waves * (2.0 * rows * columns / (share * unit_flops_per_s))
    best: Floats = waves_s.min(axis=0) * (k + surface.k_ramp)
    return best
