"""Law: more FLOP/s or bandwidth never makes an operator slower, and more work never makes it faster."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.simulator.costs import (
    ATTENTION_KERNELS,
    attention_time_s,
    gemm_time_s,
    stream_operator_time_s,
    stream_operators,
)
from forerun.spaces.clusters.device import Device, load_device

DEVICES = ("a100-sxm4-80", "h100-sxm", "b200-sxm", "l40s", "mi300x", "tpu-v5p")
KINDS = ("forward", "data_gradient", "weight_gradient", "weight_gradient_half", "weight_gradient_added")
SLACK = 1 - 1e-12  # rounding of the last bit

devices = st.sampled_from(DEVICES).map(load_device)
sizes = st.integers(1, 40_000)
factors = st.floats(1.0, 8.0)
growth = st.integers(0, 5_000)


def faster(device: Device, flops: float, bandwidth: float) -> Device:
    """Return ``device`` with ``flops`` times the peaks and ``bandwidth`` times the memory bandwidth."""
    peaks = {name: rate * flops for name, rate in device.peak_flops_per_s.items()}
    return replace(device, peak_flops_per_s=peaks, memory_bytes_per_s=device.memory_bytes_per_s * bandwidth)


@settings(max_examples=tries(80))
@given(devices, sizes, sizes, sizes, st.integers(1, 64), st.sampled_from(KINDS), factors, factors)
def test_products_on_a_faster_device(
    device: Device, m: int, n: int, k: int, groups: int, kind: Any, flops: float, bandwidth: float
) -> None:
    before = gemm_time_s(device, "bf16", m, n, k, groups=groups, kind=kind)
    after = gemm_time_s(faster(device, flops, bandwidth), "bf16", m, n, k, groups=groups, kind=kind)
    assert after * SLACK <= before


@settings(max_examples=tries(80))
@given(devices, sizes, sizes, sizes, growth, growth, growth)
def test_products_of_more_work(device: Device, m: int, n: int, k: int, dm: int, dn: int, dk: int) -> None:
    small, large = (gemm_time_s(device, "bf16", m + f * dm, n + f * dn, k + f * dk) for f in (0, 1))
    assert small * SLACK <= large


@settings(max_examples=tries(80))
@given(
    devices,
    st.sampled_from(ATTENTION_KERNELS),
    st.integers(1, 8),
    st.integers(1, 64),
    st.integers(1, 20_000),
    st.sampled_from((64, 80, 128, 192)),
    st.booleans(),
    st.booleans(),
    factors,
    factors,
    st.integers(0, 3_000),
)
def test_attention(
    device: Device,
    kernel: Any,
    batch: int,
    heads: int,
    sequence: int,
    head_dim: int,
    causal: bool,
    backward: bool,
    flops: float,
    bandwidth: float,
    more: int,
) -> None:
    def seconds(on: Device, length: int) -> float:
        return float(
            attention_time_s(
                on,
                "bf16",
                kernel=kernel,
                batch=batch,
                heads=heads,
                kv_heads=heads,
                seq_q=length,
                seq_k=length,
                head_dim=head_dim,
                value_head_dim=head_dim,
                causal=causal,
                backward=backward,
            )
        )

    before = seconds(device, sequence)
    assert seconds(faster(device, flops, bandwidth), sequence) * SLACK <= before
    # Rows of 16 bytes reach the matrix units: 1000 elements may take less than 994.
    aligned = -(-sequence // 8) * 8
    assert seconds(device, aligned) * SLACK <= seconds(device, aligned + more // 8 * 8)


@settings(max_examples=tries(60))
@given(
    devices, st.sampled_from(sorted(stream_operators())), st.booleans(), st.booleans(), st.integers(1, 10**9), factors
)
def test_streams(device: Device, name: str, fused: bool, backward: bool, elements: int, bandwidth: float) -> None:
    both = np.array([elements, elements * 2])
    small, large = stream_operator_time_s(device, name, both, fused=fused, backward=backward)
    assert small <= large
    quick = stream_operator_time_s(faster(device, 1.0, bandwidth), name, both, fused=fused, backward=backward)
    assert np.all(quick * SLACK <= np.array([small, large]))
