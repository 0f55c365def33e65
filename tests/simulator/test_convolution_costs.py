"""The cost rule of convolutions: a product where it is one, monotone, and small ones do not shrink."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.simulator.costs.convolution import ADDRESSING, DIRECTIONS, WINOGRAD_GAIN, Direction, convolution_time_s
from forerun.spaces.clusters import load_device
from forerun.spaces.errors import RequestError

DEVICE = load_device("v100-sxm2-16")
sizes = st.integers(1, 512)


def seconds(direction: Direction = "forward", precision: str = "fp32", **shape: float) -> float:
    whole = {"batch": 64, "channels": 256, "filters": 256, "window": 9, "input_pixels": 196, "output_pixels": 196}
    return float(convolution_time_s(DEVICE, precision, direction, **(whole | shape)))  # type: ignore[arg-type]


@given(direction=st.sampled_from(DIRECTIONS), field=st.sampled_from(("batch", "channels", "filters")), a=sizes, b=sizes)
def test_more_work_never_takes_less_time(direction: Direction, field: str, a: int, b: int) -> None:
    small, large = sorted((a, b))
    assert seconds(direction, **{field: small}) <= seconds(direction, **{field: large}) * (1 + 1e-9)


def test_never_faster_than_the_peak() -> None:
    flops = 2 * 64 * 196 * 256 * 256 * 9
    for direction in DIRECTIONS:
        assert seconds(direction) >= flops / DEVICE.peak("fp32")
        assert seconds(direction, winograd=True) >= flops / WINOGRAD_GAIN / DEVICE.peak("fp32")


def test_minimal_filtering_needs_channels_and_fp32() -> None:
    assert seconds(winograd=True) < 0.6 * seconds()
    assert seconds(channels=3, winograd=True) == seconds(channels=3)
    assert seconds(precision="fp16", winograd=True) == seconds(precision="fp16")


def test_a_small_convolution_keeps_its_cost_when_its_filters_are_split() -> None:
    whole, split = seconds(filters=512), seconds(filters=512 / 64)
    assert split > whole / 64 * 4


def test_the_weight_gradient_fills_the_device_by_splitting_its_sum() -> None:
    # One tile of output and a sum of a million: without splitting it would run on one of 80 units.
    pixels = {"input_pixels": 4096, "output_pixels": 4096}
    long = seconds("weight_gradient", batch=256, channels=16, filters=64, window=1, **pixels)
    flops = 2 * 256 * 4096 * 16 * 64
    assert long < 20 * flops / DEVICE.peak("fp32")


def test_groups_and_empty_work() -> None:
    assert seconds(groups=4) < seconds()
    assert seconds(batch=0) == 0.0
    sizes = {"channels": 8, "filters": 8, "window": 9, "input_pixels": 9, "output_pixels": 9}
    many = convolution_time_s(DEVICE, "fp32", "forward", batch=np.array([1, 2]), **sizes)
    assert many.shape == (2,)


def test_what_the_device_or_the_rule_does_not_have_is_refused() -> None:
    with pytest.raises(RequestError, match="no bf16"):
        seconds(precision="bf16")
    with pytest.raises(RequestError, match="unknown precision"):
        seconds(precision="fp33")
    with pytest.raises(RequestError, match="did you mean forward"):
        seconds("forwards")  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_depthwise_convolutions_take_the_time_of_their_tensors(precision: str) -> None:
    """A window of nine multiplies less than reading and writing takes; as products each would fill a tile."""
    pixels = 56**2
    moved = 2 * 64 * 144 * pixels * (4 if precision == "fp32" else 2)
    names: tuple[Direction, ...] = ("forward", "data_gradient", "weight_gradient")
    for direction in names:
        shape = {"channels": 144, "filters": 144, "groups": 144, "input_pixels": pixels, "output_pixels": pixels}
        assert 1 < seconds(direction, precision, **shape) * DEVICE.memory_bytes_per_s / moved < 2


@pytest.mark.parametrize(("device", "share"), [("p100-sxm2", ADDRESSING), ("v100-sxm2-16", 1.0)])
def test_addresses_of_a_window_cost_what_issues_them_beside_products(device: str, share: float) -> None:
    """The same product, of 25 pixels of a window and of as many channels; no window, no addresses. Minimal filtering
    has none either."""
    sizes = {"batch": 64, "filters": 512, "input_pixels": 784, "output_pixels": 784}

    def took(channels: int, window: int, *, winograd: bool = False) -> float:
        shape = sizes | {"channels": channels, "window": window}
        found = convolution_time_s(load_device(device), "fp32", "forward", **shape, winograd=winograd)  # type: ignore[arg-type]
        return float(found)

    assert took(64, 25) / took(1600, 1) == pytest.approx(share, rel=0.01)
    assert took(128, 9) / took(128, 9, winograd=True) == pytest.approx(share * WINOGRAD_GAIN, rel=0.1)
