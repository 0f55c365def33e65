"""Requests that a training mode refuses."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mode_profiles import nics, one_tensor, ten_layers

from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.modes import GradientLayer, GradientProfile, TrainingMode, analytic_prediction, throughput_curve
from forerun.spaces.errors import RequestError

SERVER: dict[str, Any] = {"exchange": "parameter-server"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"workers": 0}, "workers must be at least 1"),
        ({"synchronous": False}, "asynchronous training needs parameter servers"),
        ({"shards": 2}, "an all-reduce has no servers"),
        ({"exchange": "gossip"}, "unknown exchange 'gossip'"),
        ({**SERVER, "policy": "lifo"}, "unknown policy 'lifo'; did you mean fifo"),
        ({**SERVER, "colocated": True, "shards": 3, "workers": 2}, "use 2 shards or fewer"),
        ({**SERVER, "workers": 3, "backup_workers": 3}, "backup workers must be fewer than workers.*use 2 or fewer"),
        ({"workers": 3, "backup_workers": 1}, "only a synchronous parameter server"),
        ({"bucket_bytes": 0.0}, "a bucket has more than 0 bytes"),
    ],
)
def test_modes(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        TrainingMode(**fields)


def test_more_shards_than_parameters() -> None:
    tiny = one_tensor(parameter_bytes=12)
    with pytest.raises(RequestError, match="4 shards for 3 parameters of one; use 3 or fewer"):
        analytic_prediction(tiny, TrainingMode(**SERVER, shards=4), nics())
    with pytest.raises(RequestError, match="11 shards for 10 layers of ten; use 10 or fewer"):
        analytic_prediction(ten_layers(), TrainingMode(**SERVER, shards=11, placement="whole"), nics())


def test_slow_workers_that_are_not_there() -> None:
    with pytest.raises(RequestError, match="slow worker 4 does not exist; use 0 to 3"):
        analytic_prediction(ten_layers(), TrainingMode(workers=4), nics(), Disturbance(slow={4: 2.0}))


def test_profiles() -> None:
    with pytest.raises(RequestError, match="one or more layers"):
        GradientProfile(name="none", layers=(), batch=1)
    with pytest.raises(RequestError, match="forward_s of a layer"):
        GradientLayer(name="a", parameter_bytes=1, forward_s=float("nan"), backward_s=0)
    with pytest.raises(RequestError, match="a curve needs one number of workers"):
        throughput_curve(ten_layers(), TrainingMode(), nics(), ())


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 1000)), min_size=1, max_size=60), st.integers(1, 30))
def test_merging_keeps_sums(layers: list[tuple[int, int]], most: int) -> None:
    rows = tuple(
        GradientLayer(name=str(n), parameter_bytes=size, forward_s=time / 1000, backward_s=time / 500)
        for n, (size, time) in enumerate(layers)
    )
    profile = GradientProfile(name="drawn", layers=rows, batch=1, host_s=1.0)
    merged = profile.merged(most)
    assert 1 <= len(merged.layers) <= max(most, 1) or len(merged.layers) == len(rows) <= most
    assert merged.total_bytes == pytest.approx(profile.total_bytes)
    assert merged.step_s == pytest.approx(profile.step_s)
