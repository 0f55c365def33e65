"""The catalogue of devices: published figures, complete sources, and what is refused."""

from functools import cache

import pytest

from forerun.spaces.clusters import Device, device_from_mapping, device_names, load_device
from forerun.spaces.errors import RequestError

NEEDED_SOURCES = {"memory", "memory_rate", "peak", "compute_units", "matmul_ceiling", "memory_efficiency"}


@cache
def devices() -> tuple[Device, ...]:
    return tuple(map(load_device, device_names()))


def test_every_constant_names_its_source() -> None:
    for device in devices():
        assert set(device.sources) >= NEEDED_SOURCES, device.name
        for key, given in {
            "watts": device.watts is not None,
            "usd_per_hour": device.usd_per_hour is not None,
            "link": device.link_bytes_per_s > 0,
            "nic_rate": device.nic_bytes_per_s is not None,
            "host_rate": True,
        }.items():
            assert (key in device.sources) == given, (device.name, key)
        assert all(len(source) > 5 for source in device.sources.values()), device.name


def test_figures_are_of_the_right_size() -> None:
    for device in devices():
        assert 8 * 2**30 < device.memory_bytes < 300 * 2**30, device.name
        assert 200e9 < device.memory_bytes_per_s <= 8e12, device.name
        assert 2 <= device.compute_units <= 320, device.name
        assert all(2e12 < rate <= 15e15 for rate in device.peak_flops_per_s.values()), device.name
        assert device.link_bytes_per_s <= 900e9, device.name
        assert (device.link_kind == "none") == (device.link_bytes_per_s == 0) == (device.link_count == 0), device.name


def test_a_ceiling_is_never_the_whole_peak() -> None:
    for device in devices():
        assert device.matmul_ceiling, device.name
        assert all(0.4 < share < 1 for share in device.matmul_ceiling.values()), device.name
        assert 0.7 <= device.memory_efficiency < 0.95, device.name


def test_narrower_numbers_are_never_slower() -> None:
    for device in devices():
        peak = device.peak_flops_per_s
        for wide, narrow in (("fp32", "tf32"), ("tf32", "bf16"), ("bf16", "fp8"), ("fp8", "fp4")):
            if wide in peak and narrow in peak:
                assert peak[wide] <= peak[narrow], device.name


# NVIDIA and AMD data sheets: dense bf16 (fp16 on Volta and Turing) TFLOP/s, memory GB/s, multiprocessors.
@pytest.mark.parametrize(
    ("name", "precision", "tflops", "gb_per_s", "units"),
    [
        ("v100-sxm2-16", "fp16", 125, 900, 80),
        ("a100-sxm4-80", "bf16", 312, 2039, 108),
        ("a100-sxm4-40", "bf16", 312, 1555, 108),
        ("h100-sxm", "bf16", 989, 3350, 132),
        ("h100-pcie", "bf16", 756, 2000, 114),
        ("h200-sxm", "bf16", 989, 4800, 132),
        ("b200-sxm", "bf16", 2250, 7700, 148),
        ("mi300x", "bf16", 1307, 5300, 304),
        ("mi250x-gcd", "bf16", 191.5, 1640, 110),
        ("l40s", "bf16", 362, 864, 142),
        ("t4", "fp16", 65, 320, 40),
        ("rtx4090", "bf16", 165.2, 1008, 128),
        ("titan-xp", "fp32", 12.15, 547.7, 30),
        ("gtx-1080-ti", "fp32", 11.34, 484, 28),
    ],
)
def test_published_figures(name: str, precision: str, tflops: float, gb_per_s: float, units: int) -> None:
    device = load_device(name)
    assert device.peak(precision) == pytest.approx(tflops * 1e12)
    assert device.memory_bytes_per_s == pytest.approx(gb_per_s * 1e9)
    assert device.compute_units == units


@pytest.mark.parametrize("name", ["v100-sxm2-16", "v100-sxm2-32", "t4", "titan-rtx"])
def test_bf16_is_refused_where_there_are_no_units_for_it(name: str) -> None:
    with pytest.raises(RequestError, match="no bf16 matrix units; use fp16"):
        load_device(name).peak("bf16")


def test_other_missing_precisions_name_those_there_are() -> None:
    with pytest.raises(RequestError, match="has no fp8 matrix units; it has bf16, fp16, tf32, fp32"):
        load_device("a100-sxm4-80").peak("fp8")


def test_a_device_of_the_users_own() -> None:
    device = device_from_mapping(
        {
            "memory": "10GiB",
            "memory_rate": "500GB/s",
            "peak": {"bf16": "100TFLOP/s"},
            "compute_units": 50,
            "matmul_ceiling": {"bf16": 0.8},
            "memory_efficiency": 0.8,
            "host_rate": "32GB/s",
        },
        name="mine",
    )
    assert (device.title, device.memory_bytes, device.link_kind) == ("mine", 10 * 2**30, "none")
    assert device.source == "the user's own figures"
