"""Attention: pairs against counting, the order of kernels, and figures that users can check."""

from typing import Any

import numpy as np
import pytest

from forerun.simulator.costs import ATTENTION_KERNELS, attended_pairs, attention_time_s
from forerun.spaces.clusters.device import load_device
from forerun.spaces.errors import RequestError

SHAPE: dict[str, Any] = {
    "batch": 2,
    "heads": 32,
    "kv_heads": 8,
    "seq_q": 4096,
    "seq_k": 4096,
    "head_dim": 128,
    "value_head_dim": 128,
    "causal": True,
}


def counted_pairs(sq: int, sk: int, *, causal: bool, window: int | None) -> int:
    """Count the pairs one by one: query i of sq sees keys up to sk - sq + i, at most the last ``window`` of them."""
    total = 0
    for query in range(1, sq + 1):
        seen = max(0, sk - sq + query) if causal else sk
        total += seen if window is None else min(seen, window)
    return total


@pytest.mark.parametrize("window", [None, 1, 3, 8, 100])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("sq", "sk"), [(1, 1), (5, 5), (8, 8), (3, 9), (9, 3), (1, 20)])
def test_pairs_equal_counting_them(sq: int, sk: int, causal: bool, window: int | None) -> None:
    assert attended_pairs(sq, sk, causal=causal, window=window) == counted_pairs(sq, sk, causal=causal, window=window)


@pytest.mark.parametrize(
    ("device", "low", "high"), [("a100-sxm4-80", 130, 190), ("h100-sxm", 400, 600), ("b200-sxm", 700, 1100)]
)
def test_flash_forward_runs_at_published_rates(device: str, low: float, high: float) -> None:
    seconds = float(attention_time_s(load_device(device), "bf16", kernel="flash", **SHAPE))
    flops = 4 * 2 * 32 * 128 * float(attended_pairs(4096, 4096, causal=True))
    assert low < flops / seconds / 1e12 < high


@pytest.mark.parametrize("seq", [16384, 65536, 262144])
def test_long_attention_on_ampere_runs_at_the_rate_of_whole_runs(seq: int) -> None:
    """With everything recomputed; runs of 16k to 262k tokens on A100 differ by attention at 186 to 194 TFLOP/s."""
    device, shape = load_device("a100-sxm4-80"), {**SHAPE, "seq_q": seq, "seq_k": seq}
    forward_s, backward_s = (
        float(attention_time_s(device, "bf16", kernel="flash2", backward=backward, **shape))
        for backward in (False, True)
    )
    flops = 4 * 2 * 32 * 128 * float(attended_pairs(seq, seq, causal=True))
    assert 4.5 * flops / (2 * forward_s + backward_s) / 1e12 == pytest.approx(190, rel=0.1)


def test_each_older_kernel_is_slower() -> None:
    device = load_device("h100-sxm")
    for backward in (False, True):
        seconds = [
            float(attention_time_s(device, "bf16", kernel=k, backward=backward, **SHAPE)) for k in ATTENTION_KERNELS
        ]
        assert seconds == sorted(seconds)
        assert len(set(seconds)) == len(seconds)


def test_flash_2_is_the_best_kernel_of_ampere() -> None:
    device = load_device("a100-sxm4-80")
    flash, flash2 = (attention_time_s(device, "bf16", kernel=k, **SHAPE) for k in ("flash", "flash2"))
    assert flash == flash2


def test_causal_masks_save_nearly_half_and_windows_more() -> None:
    device = load_device("a100-sxm4-80")
    long = SHAPE | {"seq_q": 16384, "seq_k": 16384, "batch": 1}
    full = float(attention_time_s(device, "bf16", kernel="flash", **(long | {"causal": False})))
    causal = float(attention_time_s(device, "bf16", kernel="flash", **long))
    window = float(attention_time_s(device, "bf16", kernel="flash", window=1024, **long))
    assert 0.5 < causal / full < 0.6
    assert window < 0.3 * causal


def test_backward_takes_two_to_four_times_forward() -> None:
    for name in ("a100-sxm4-80", "h100-sxm", "b200-sxm", "l40s"):
        forward, backward = (
            float(attention_time_s(load_device(name), "bf16", kernel="flash", backward=b, **SHAPE))
            for b in (False, True)
        )
        assert 2 < backward / forward < 4


def test_eight_bit_training_keeps_attention_in_bf16() -> None:
    device = load_device("h100-sxm")
    assert attention_time_s(device, "fp8", kernel="flash", **SHAPE) == attention_time_s(
        device, "bf16", kernel="flash", **SHAPE
    )


def test_a_padded_head_dimension_costs_the_next_multiple_of_32() -> None:
    device = load_device("a100-sxm4-80")
    odd, even = (
        float(attention_time_s(device, "bf16", kernel="flash", **(SHAPE | {"head_dim": d, "value_head_dim": d})))
        for d in (80, 96)
    )
    assert odd == pytest.approx(even, rel=0.01)


def test_dropout_costs_traffic_where_scores_are_stored() -> None:
    device = load_device("a100-sxm4-80")
    for kernel in ("fused_softmax", "unfused"):
        with_it, without = (
            float(attention_time_s(device, "bf16", kernel=kernel, dropout=d, **SHAPE))  # type: ignore[arg-type]
            for d in (True, False)
        )
        assert with_it > without


def test_shapes_broadcast_and_agree_with_scalars() -> None:
    device = load_device("h100-sxm")
    heads = np.array([4, 8, 32])
    for kernel in ATTENTION_KERNELS:
        shape = SHAPE | {"heads": heads, "kv_heads": heads}
        together = attention_time_s(device, "bf16", kernel=kernel, **shape)  # type: ignore[arg-type]
        alone = [
            float(attention_time_s(device, "bf16", kernel=kernel, **(SHAPE | {"heads": h, "kv_heads": h})))  # type: ignore[arg-type]
            for h in heads
        ]
        assert together.tolist() == alone


def test_unknown_kernel_names_the_known() -> None:
    with pytest.raises(RequestError, match="flash2"):
        attention_time_s(load_device("h100-sxm"), "bf16", kernel="flash9", **SHAPE)  # type: ignore[arg-type]  # the point
