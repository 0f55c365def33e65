"""Constants of devices whose products run on a few large systolic arrays (TPUs), which no micro-benchmark was published
of: what the arrays imply, and the shares that whole runs of MaxText leave.

An array works through a product of any shape in passes of its own width, without tiles that come in waves over many
units, and its clock is not held down by power. A head dimension below its width leaves a part of the array idle, in
both products of attention. XLA fuses what is memory-bound, so that arithmetic never bounds it.
"""

from typing import Any

from forerun.simulator.costs.efficiency import TILE_CLASSES, AttentionEfficiency, StreamEfficiency

PEAK_SHARE = 0.87
"""Of large products: the highest ceiling that a fitted surface confirms (A100); catalogued is 0.9, an assumption."""
ATTENTION_SHARE = {"forward": 0.6, "backward": 0.5}
"""Of attention whose heads fill the array, as fused kernels reach on GPUs (A100: 0.66 and 0.51)."""
KEY_RAMP = 256.0
STREAM_SHARE = 0.8
WIDTHS = {"tpu-v5e": 128, "tpu-v6e": 256}
"""Width of the arrays of TPU v4, v5e and v5p, and of those from v6e on (jax-ml/scaling-book, tpus.md), by the device
whose name stands for them."""
HEAD_WIDTH = 128
"""Usual head dimension: wider arrays idle beyond it."""

_FIXED_S = 2.0e-6
_NO_BOUND = 1.0e15


def entries() -> dict[str, dict[str, Any]]:
    """Return the constants of every width as ``compute.yaml`` has them."""
    return {device: _entry(width) for device, width in WIDTHS.items()}


def _entry(width: int) -> dict[str, Any]:
    product = {
        "peak_share": PEAK_SHARE,
        "wave_hardness": 0.0,
        "k_ramp": 0.0,
        "memory_share": 0.9,
        "fixed_s": _FIXED_S,
        "data_gradient_share": 1.0,
        "weight_gradient_share": 1.0,
        "grouped_share": 0.9,
        "tile_shares": [1.0] * len(TILE_CLASSES),
    }
    attention = {
        f"attention_{name}": AttentionEfficiency(
            peak_share=share,
            head_dim_ramp=float(width - HEAD_WIDTH),
            block_rows=512,
            key_ramp=KEY_RAMP,
            wave_hardness=0.0,
            fixed_s=8.0e-6,
            flash2_share=1.0,
        )
        for name, share in ATTENTION_SHARE.items()
    }
    return {
        "provenance": f"uncalibrated: arrays of {width} x {width}, whole runs alone",
        "matmul_ceiling": PEAK_SHARE,
        "memory_efficiency": STREAM_SHARE,
        "sustained_clock": {"half": 1.0, "fp8": 1.0},
        "sustained_clock_source": "no clock that falls under load is known of them",
        "gemm": {"half": product},
        **attention,
        "stream": StreamEfficiency(memory_share=STREAM_SHARE, elements_per_unit_s=_NO_BOUND, fixed_s=_FIXED_S),
    }
