"""Constants move the cost of what they are about, and nothing else; at the catalogue's values every bit stays."""

import numpy as np
import pytest
from forerun_examples import request
from forerun_machines import machine_context, some_strategies, times_of

from forerun.simulator.calibration import CONSTANTS, NAMES, calibrated, constant_named
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Strategy


def test_the_catalogue_is_left_as_it_is() -> None:
    context = machine_context()
    assert calibrated(context, {}) is context
    assert calibrated(context, dict.fromkeys(NAMES, 0.0)) is context


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda constant: constant.name)
def test_factors_grow_from_nothing(constant) -> None:  # type: ignore[no-untyped-def]
    assert constant.factor(0.0) == (0.0 if constant.share else 1.0)
    assert constant.factor(1.0) > constant.factor(0.0)


@pytest.mark.parametrize(
    "name", ["compute", "attention", "memory_bandwidth", "scale_up_bandwidth", "network_bandwidth"]
)
def test_a_faster_machine_is_faster(name: str) -> None:
    context, strategies = request(), some_strategies()
    base, faster = times_of(context, strategies), times_of(calibrated(context, {name: 1.0}), strategies)
    assert all(after <= before * (1 + 1e-12) for before, after in zip(base, faster, strict=True))
    assert any(after < before for before, after in zip(base, faster, strict=True))


def test_a_slower_host_is_slower_where_the_host_decides() -> None:
    context = machine_context()
    few = [Strategy(dp=16, mbs=1)]
    assert times_of(calibrated(context, {"host_layer": 2.0}), few) > times_of(context, few)


def test_the_network_does_not_matter_inside_one_node() -> None:
    inside = [Strategy(dp=2, tp=4, mbs=1, zero=1)]
    context = request()
    assert times_of(calibrated(context, {"network_bandwidth": -2.0}), inside) == times_of(context, inside)
    assert times_of(calibrated(context, {"scale_up_bandwidth": -2.0}), inside) > times_of(context, inside)


def test_shares_stay_between_nothing_and_everything() -> None:
    context = request()
    for z in (-4.0, 4.0):
        moved = calibrated(context, {"overlap_gradients": z, "overlap_tensor": z}).framework
        assert moved.overlap_gradients == (1.0 if z > 0 else 0.0)
        assert moved.overlap_tensor == (1.0 if z > 0 else 0.0)


def test_peaks_stay_so_that_utilisation_is_that_of_the_device() -> None:
    context = request()
    moved = calibrated(context, {"compute": -2.0})
    assert moved.cluster.device.peak("bf16") == context.cluster.device.peak("bf16")


def test_an_unknown_constant_names_the_known_ones() -> None:
    with pytest.raises(RequestError, match="did you mean compute"):
        constant_named("computer")


def test_moving_twice_is_moving_by_the_sum() -> None:
    context, strategies = request(), some_strategies()
    twice = calibrated(calibrated(context, {"compute": 0.5}), {"compute": 0.5})
    np.testing.assert_allclose(
        times_of(twice, strategies), times_of(calibrated(context, {"compute": 1.0}), strategies), rtol=1e-12
    )
