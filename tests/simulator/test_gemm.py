"""Matrix products: closed forms of the tiled rule, its edges, and figures that users can check."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.simulator.costs import ComputeEfficiency, compute_provenance, device_efficiency, gemm_time_s
from forerun.simulator.costs.efficiency import GemmEfficiency
from forerun.simulator.costs.gemm import gemm_surface_s
from forerun.spaces.clusters.device import device_names, load_device
from forerun.spaces.errors import RequestError

ONE_TILE = GemmEfficiency(
    peak_share=0.5,
    tiles=((128, 128, 1.0),),
    wave_hardness=1.0,
    k_ramp=64.0,
    memory_share=1.0,
    fixed_s=1e-6,
    data_gradient_share=0.9,
    weight_gradient_share=0.8,
    grouped_share=0.5,
)


def one_tile_s(
    m: float, n: float, k: float, *, kind: str = "forward", groups: float = 1, bytes_per_s: float = 1e30
) -> float:
    """Seconds on a device of 10 units and 1 TFLOP/s whose only tile is 128 by 128."""
    return float(
        gemm_surface_s(
            ONE_TILE,
            m,
            n,
            k,
            groups=groups,
            kind=kind,
            flops_per_s=1e12,
            bytes_per_s=bytes_per_s,
            compute_units=10,
            input_bytes=2.0,
        )
    )


def test_one_full_wave_costs_its_flops_at_the_share_of_peak() -> None:
    flops = 2 * (10 * 128) * 128 * (1000 + 64)  # ten tiles, one per unit, and the ramp of k
    assert one_tile_s(1280, 128, 1000) == pytest.approx(flops / 0.5e12 + 1e-6)


def test_an_eleventh_tile_costs_a_second_wave() -> None:
    one, two = one_tile_s(1280, 128, 1000), one_tile_s(1281, 128, 1000)
    assert two - 1e-6 == pytest.approx(2 * (one - 1e-6))


def test_memory_bound_product_costs_its_bytes() -> None:
    bytes_moved = 2 * (128 * 64 + 64 * 128 + 128 * 128)
    assert one_tile_s(128, 128, 64, bytes_per_s=1e3) == pytest.approx(bytes_moved / 1e3, rel=1e-6)


def test_fp32_accumulation_reads_and_writes_four_bytes_more() -> None:
    extra = one_tile_s(128, 128, 64, kind="weight_gradient", bytes_per_s=1e3) - one_tile_s(
        128, 128, 64, kind="weight_gradient_half", bytes_per_s=1e3
    )
    assert extra == pytest.approx((8 - 2) * 128 * 128 / 1e3, rel=1e-6)


def test_accumulation_in_sixteen_bit_reads_what_it_adds_to() -> None:
    kinds = ("weight_gradient_added", "weight_gradient_half")
    added, written = (one_tile_s(128, 128, 64, kind=kind, bytes_per_s=1e3) for kind in kinds)
    assert added - written == pytest.approx(2 * 128 * 128 / 1e3, rel=1e-6)


def test_gradients_and_groups_run_at_their_shares() -> None:
    base = one_tile_s(1280, 128, 1000) - 1e-6
    assert one_tile_s(1280, 128, 1000, kind="data_gradient") - 1e-6 == pytest.approx(base / 0.9)
    assert one_tile_s(1280, 128, 1000, kind="weight_gradient") - 1e-6 == pytest.approx(base / 0.8)
    assert one_tile_s(640, 128, 1000, groups=2) - 1e-6 == pytest.approx(base / 0.5)


def test_shapes_broadcast_and_agree_with_scalars() -> None:
    device = load_device("h100-sxm")
    m, n = np.array([[512], [4096]]), np.array([1024, 5120, 8192])
    together = gemm_time_s(device, "bf16", m, n, 4096)
    assert together.shape == (2, 3)
    for row in range(2):
        for column in range(3):
            assert together[row, column] == gemm_time_s(device, "bf16", m[row, 0], n[column], 4096)


def test_an_empty_product_takes_no_time() -> None:
    assert gemm_time_s(load_device("h100-sxm"), "bf16", [0, 128], 128, 128)[0] == 0.0


@pytest.mark.parametrize(
    ("device", "precision", "low", "high"),
    [  # TFLOP/s that training sustains on an 8192 cube: published guides and runs, see benchmarks/fit
        ("a100-sxm4-80", "bf16", 235, 265),
        ("h100-sxm", "bf16", 620, 730),
        ("h100-sxm", "fp8", 1150, 1400),
        ("b200-sxm", "bf16", 1000, 1500),
    ],
)
def test_large_products_run_at_published_rates(device: str, precision: str, low: float, high: float) -> None:
    seconds = float(gemm_time_s(load_device(device), precision, 8192, 8192, 8192))
    assert low < 2 * 8192**3 / seconds / 1e12 < high


def test_eight_bit_is_faster_where_the_device_has_it() -> None:
    device = load_device("h100-sxm")
    assert gemm_time_s(device, "fp8", 8192, 8192, 8192) < gemm_time_s(device, "bf16", 8192, 8192, 8192)


@pytest.mark.parametrize("name", device_names())
def test_every_device_has_constants_and_says_where_they_come_from(name: str) -> None:
    device = load_device(name)
    found = device_efficiency(device)
    assert isinstance(found, ComputeEfficiency)
    assert found.provenance == compute_provenance(device)
    assert found.provenance.startswith(("fitted to", "uncalibrated"))
    precision = next(iter(device.peak_flops_per_s))
    reached = 2 * 4096**3 / float(gemm_time_s(device, precision, 4096, 4096, 4096))
    assert 0.2 * device.peak(precision) < reached < device.peak(precision)


def test_a_borrowed_surface_is_scaled_by_the_measured_ceilings() -> None:
    lender = load_device("h100-sxm")
    slower = replace(lender, name="mine", matmul_ceiling={"bf16": lender.matmul_ceiling["bf16"] / 2})
    theirs, mine = device_efficiency(lender), device_efficiency(slower)
    assert mine.gemm["half"].peak_share == pytest.approx(theirs.gemm["half"].peak_share / 2)
    assert compute_provenance(slower) == "uncalibrated: borrowed from h100-sxm, scaled by 0.50"


def test_unknown_requests_name_what_there_is() -> None:
    device = load_device("v100-sxm2-32")
    with pytest.raises(RequestError, match="use fp16"):
        gemm_time_s(device, "bf16", 128, 128, 128)
    with pytest.raises(RequestError, match="bf16"):
        gemm_time_s(device, "bf17", 128, 128, 128)
    with pytest.raises(RequestError, match="weight_gradient"):
        gemm_time_s(device, "fp16", 128, 128, 128, kind="weight_grad")  # type: ignore[arg-type]  # the point
