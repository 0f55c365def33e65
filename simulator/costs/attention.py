"""Seconds of scaled dot-product attention on a device: fused (flash) or as products and passes over the scores.

The fused kernels process blocks of queries, one per compute unit at a time (Dao, "FlashAttention-2", 2023): the time is
the waves of blocks times the keys visited by a block. The remaining constants are fitted in ``efficiency``.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.simulator.costs.efficiency import AttentionEfficiency, device_efficiency
from forerun.simulator.costs.gemm import INPUT_BYTES, gemm_time_s
from forerun.simulator.costs.memory_bound import memory_bound_time_s, stream_operator
from forerun.spaces.clusters.device import Device
from forerun.spaces.errors import unknown

Floats = NDArray[np.float64]

_SHAPE = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "value_head_dim")
"""Numbers of a measured attention, in order."""
AttentionKernel = Literal["flash", "flash2", "flash_triton", "flash1", "fused_softmax", "unfused_half", "unfused"]

MATERIALISED = ("fused_softmax", "unfused_half", "unfused")
"""Kernels that write all scores to memory."""
ATTENTION_KERNELS = ("flash", "flash2", "flash_triton", "flash1", *MATERIALISED)

# FlashAttention 1 against 2: half the speed at 2k to 16k tokens on A100 (Dao 2023, figures 4 to 6, causal), and in
# published A100 runs that differ only in the kernel (release 1.0.8). Refitted without either of two trainers: 0.45,
# 0.50.
_FLASH1_SHARE = 0.5

# The 2023 Triton kernel of FlashAttention against FlashAttention 2: published llm-foundry runs on A100 with 32k and 65k
# tokens, whose step is mostly attention.
_TRITON_SHARE = 0.68

# On Hopper less: Triton of 2023 made no use of its warp-group products. Runs of 4k to 65k tokens of one table
# (llm_foundry).
_TRITON_HOPPER_SHARE = 0.56

# The micro-benchmarks behind the surface of A100 end at 16k tokens forward and 5k backward. Beyond, FlashAttention 2
# gains up to a fourth: whole runs of 16k to 262k tokens (12 of two models) reach 186 to 194 TFLOP/s in attention. From
# either model alone, and from three runs of another trainer at 8k, the gain is 0.25 to 0.3. The Triton kernel does not
# gain.
_LONG_GAIN, _LONG_KEYS = 0.25, 2048.0

# Power falls faster than speed when a kernel uses the matrix units less: attention loses the square root of the loss of
# matrix products. SimuMax: 0.95 against 0.86 from A100 SXM to PCIe, 0.83 against 0.71 on B200 in long runs.
SUSTAINED_EXPONENT = 0.5

# Batched products with a row length that is not a multiple of this do not use the matrix units (NVIDIA, Matrix
# Multiplication Background User's Guide: 16 bytes). Published 176B to 195B runs on A100 with heads of 150 and 108 reach
# this share of the vector peak in attention.
_MATRIX_STEP = 8
_VECTOR_SHARE = 0.54

# Fused kernels are compiled for head dimensions in these steps and pad the others (operators_ett: 80 runs as 96).
_HEAD_DIM_STEP = 32.0

# Training in 8 or 4 bit keeps attention in bf16 (Transformer Engine's default recipes).
_ATTENTION_PRECISION = {"fp8": "bf16", "mxfp8": "bf16", "fp4": "bf16", "nvfp4": "bf16"}


def attention_time_s(
    device: Device,
    precision: str,
    *,
    kernel: AttentionKernel,
    batch: ArrayLike,
    heads: ArrayLike,
    kv_heads: ArrayLike,
    seq_q: ArrayLike,
    seq_k: ArrayLike,
    head_dim: ArrayLike,
    value_head_dim: ArrayLike,
    causal: bool,
    window: int | None = None,
    dropout: bool = False,
    backward: bool = False,
) -> Floats:
    """Seconds of attention from projected queries, keys and values to the heads' outputs, without host launches.

    ``flash`` is the best fused kernel of the device's generation (FlashAttention 2 on Ampere, 3 or cuDNN from Hopper
    on), ``flash2`` and ``flash1`` are older releases on any device; ``fused_softmax`` and ``unfused`` materialise all
    scores and mask afterwards, ``unfused_half`` with the softmax in 16 bit. ``causal`` aligns the last query with the
    last key, so query i of s attends to ``seq_k - s + i`` keys; ``window`` limits them to the last ``window`` keys. A
    rank of balanced context parallelism computes half of all pairs: pass ``causal=False`` with half the keys.
    ``dropout`` on the scores costs a mask only where they are materialised. Shapes broadcast.

    Raises
    ------
    RequestError
        ``kernel`` is unknown, or the device does not have the precision.
    """
    if kernel not in ATTENTION_KERNELS:
        raise unknown("attention kernel", kernel, ATTENTION_KERNELS)
    precision = _ATTENTION_PRECISION.get(precision, precision)
    shape = (batch, heads, kv_heads, seq_q, seq_k, head_dim, value_head_dim)
    b, h, g, sq, sk, d, dv = (np.asarray(value, dtype=np.float64) for value in shape)
    if device.measured is not None:
        bare = replace(device, measured=None)
        mask = "causal" if causal else "full"
        mask += "" if window is None else f" window={window}"

        def fitted(*shape: ArrayLike) -> Floats:
            named = dict(zip(_SHAPE, shape, strict=True))
            return attention_time_s(
                bare,
                precision,
                kernel=kernel,
                causal=causal,
                window=window,
                dropout=dropout,
                backward=backward,
                **named,
            )

        name = f"attention {kernel} {'backward' if backward else 'forward'} {precision} {mask}"
        return device.measured.seconds(name, (b, h, g, sq, sk, d, dv), fitted)
    if kernel in MATERIALISED:
        return _unfused_s(device, precision, kernel, b * h, sq, sk, d, dv, dropout=dropout, backward=backward)
    efficiency = device_efficiency(device)
    surface = efficiency.attention_backward if backward else efficiency.attention_forward
    hopper = device.architecture.startswith("Hopper")
    older = {
        "flash": 1.0,
        "flash2": surface.flash2_share,
        "flash1": surface.flash2_share * _FLASH1_SHARE,
        "flash_triton": surface.flash2_share * (_TRITON_HOPPER_SHARE if hopper else _TRITON_SHARE),
    }
    share = efficiency.sustained_clock["half"] ** SUSTAINED_EXPONENT * older[kernel]
    share *= device.compute_share * device.attention_share
    if kernel in ("flash", "flash2") and device.architecture.startswith("Ampere"):
        keys = attended_pairs(sq, sk, causal=causal, window=window) / np.maximum(sq, 1.0)
        share = share * (1.0 + _LONG_GAIN * np.maximum(1.0 - _LONG_KEYS / np.maximum(keys, 1.0), 0.0))
    return flash_surface_s(
        surface,
        batch=b,
        heads=h,
        kv_heads=g,
        seq_q=sq,
        seq_k=sk,
        head_dim=d,
        value_head_dim=dv,
        causal=causal,
        window=window,
        backward=backward,
        flops_per_s=device.peak(precision) * share,
        bytes_per_s=device.memory_bytes_per_s * efficiency.stream.memory_share,
        compute_units=device.compute_units,
    )


def attended_pairs(seq_q: ArrayLike, seq_k: ArrayLike, *, causal: bool, window: int | None = None) -> Floats:
    """Return the number of pairs of query and key in one head (closed form); ``window``: limit of keys per query."""
    sq, sk = np.asarray(seq_q, dtype=np.float64), np.asarray(seq_k, dtype=np.float64)
    limit = sk if window is None else np.minimum(sk, float(window))
    if not causal:
        return np.asarray(sq * limit)
    # With f keys before the first query, r queries and a limit of l keys, query i has min(f + i, l) keys: the first g =
    # l - f have g f + g (g + 1) / 2 together, the others l each.
    first = np.maximum(sk - sq, 0.0)  # keys before the first query
    rows = np.minimum(sq, sk)  # queries with any key
    growing = np.clip(limit - first, 0.0, rows)  # queries with all keys up to themselves
    return np.asarray(growing * first + growing * (growing + 1) / 2 + (rows - growing) * limit)


def attention_work(
    *,
    batch: ArrayLike,
    heads: ArrayLike,
    kv_heads: ArrayLike,
    seq_q: ArrayLike,
    seq_k: ArrayLike,
    head_dim: ArrayLike,
    value_head_dim: ArrayLike,
    causal: bool,
    window: int | None = None,
    backward: bool = False,
) -> tuple[Floats, Floats]:
    """Return the operations and bytes of fused attention; shapes as for ``attention_time_s``.

    There are two products per pair forward and five backward (scores again, and four gradients); every tensor is read
    or written once, in the backward pass with its gradients.
    """
    shape = (batch, heads, kv_heads, seq_q, seq_k, head_dim, value_head_dim)
    b, h, g, sq, sk, d, dv = (np.asarray(value, dtype=np.float64) for value in shape)
    pairs = b * h * attended_pairs(sq, sk, causal=causal, window=window)
    # Forward: S = Q K^T (d) and O = P V (dv). Backward: S again, dQ = dS K and dK = dS^T Q (d each), dP = dO V^T and dV
    # = P^T dO (dv each).
    flops = 2.0 * pairs * (3 * d + 2 * dv if backward else d + dv)
    return np.asarray(flops), np.asarray(b * (h * sq + g * sk) * (d + dv) * (6.0 if backward else 2.0))


def flash_surface_s(
    surface: AttentionEfficiency,
    *,
    batch: Floats,
    heads: Floats,
    kv_heads: Floats,
    seq_q: Floats,
    seq_k: Floats,
    head_dim: Floats,
    value_head_dim: Floats,
    causal: bool,
    window: int | None,
    backward: bool,
    flops_per_s: Floats | float,
    bytes_per_s: float,
    compute_units: int,
) -> Floats:
    """Return the seconds from given constants; shared by ``attention_time_s`` (with its shapes) and the fit.

    Forward multiplies twice per pair (scores, output); backward five times (scores again, and four gradients). The time
    is that of list scheduling: the mean work of a compute unit plus a share of the longest block, and at least the
    longest block.
    """
    # Blocks of r queries: w = b h ceil(s_q / r) / units waves, of k keys on average and k_max at most. K = max(w k +
    # hardness k_max, k_max); compute = 2 r K (width + ramp) / rate of one unit; time = max(compute, bytes / bandwidth)
    # + fixed.
    rows = float(surface.block_rows)
    waves = batch * heads * np.ceil(seq_q / rows) / compute_units
    start = surface.key_ramp + (rows / 2 if causal else 0.0)  # the block on the diagonal is computed in full
    mean_keys = attended_pairs(seq_q, seq_k, causal=causal, window=window) / np.maximum(seq_q, 1.0) + start
    longest_keys = (seq_k if window is None else np.minimum(seq_k, float(window))) + surface.key_ramp
    keys = np.maximum(waves * mean_keys + surface.wave_hardness * longest_keys, longest_keys)
    d, dv = (np.ceil(size / _HEAD_DIM_STEP) * _HEAD_DIM_STEP for size in (head_dim, value_head_dim))
    width = 3 * d + 2 * dv if backward else d + dv
    flops = 2.0 * rows * keys * (width + surface.head_dim_ramp)
    compute = flops / (flops_per_s * surface.peak_share / compute_units)
    tensors = batch * (heads * seq_q + kv_heads * seq_k) * (head_dim + value_head_dim)
    memory = tensors * (6.0 if backward else 2.0) / bytes_per_s  # backward: read all, their gradients, write theirs
    work = batch * heads * seq_q * seq_k
    seconds: Floats = np.where(work > 0, np.maximum(compute, memory) + surface.fixed_s, 0.0)
    return seconds


def _unfused_s(
    device: Device,
    precision: str,
    kernel: str,
    groups: Floats,
    sq: Floats,
    sk: Floats,
    d: Floats,
    dv: Floats,
    *,
    dropout: bool,
    backward: bool,
) -> Floats:
    """Seconds of the batched products and of the softmax and dropout passes over all scores."""
    products = [(sq, sk, d), (sq, dv, sk)]
    if backward:
        products = [(sk, dv, sq), (sq, sk, dv), (sq, d, sk), (sk, d, sq)]  # dV, dP, dQ, dK
    total = np.asarray(0.0)
    vector = device.peak_flops_per_s.get("fp32", device.peak(precision)) * _VECTOR_SHARE
    for m, n, k in products:
        matrix_s = gemm_time_s(device, precision, m, n, k, groups=groups)
        aligned = (n % _MATRIX_STEP == 0) & (k % _MATRIX_STEP == 0)
        total = total + np.where(aligned, matrix_s, np.maximum(matrix_s, 2 * groups * m * n * k / vector))
    softmax = stream_operator("softmax_half" if kernel == "unfused_half" else "softmax")
    passes = [softmax.one_pass(fused=kernel == "fused_softmax", backward=backward)]
    # Frameworks call dropout also at rate zero, which copies; the same runs show its traffic without dropout.
    passes.append(stream_operator("dropout" if dropout else "copy").one_pass(fused=True, backward=backward))
    scores = groups * sq * sk
    wide = max(INPUT_BYTES[precision] / 2.0, 1.0)  # passes are counted for scores in 16 bit
    for one in passes:
        total = total + memory_bound_time_s(
            device, wide * scores * one.bytes_per_element, elements=scores * one.math_per_element, kernels=one.kernels
        )
    return total / device.attention_share
