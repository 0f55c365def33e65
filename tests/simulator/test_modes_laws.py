"""Laws of data-parallel training that both models keep."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mode_profiles import nics, one_tensor, ten_layers
from profiles import tries

from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.modes import GradientProfile, ModeNetwork, TrainingMode, analytic_prediction, one_worker_step_s
from forerun.simulator.modes.events import event_prediction
from forerun.simulator.modes.prediction import ModePrediction

ASYNC: dict[str, Any] = {"exchange": "parameter-server", "synchronous": False}
SYNC: dict[str, Any] = {"exchange": "parameter-server"}


def both(
    profile: GradientProfile, mode: TrainingMode, network: ModeNetwork, noise: Disturbance | None = None
) -> tuple[ModePrediction, ModePrediction]:
    alone_s = one_worker_step_s(profile, mode, network) if mode.exchange == "parameter-server" else None
    analytic = analytic_prediction(profile, mode, network, noise, one_worker_s=alone_s)
    return analytic, event_prediction(profile, mode, network, noise, draws=1)  # each run keeps them


@pytest.mark.parametrize("overlap", (True, False))
def test_one_worker_equals_the_profile(overlap: bool) -> None:
    profile = ten_layers(update_s=0.02, host_s=0.03)
    for found in both(profile, TrainingMode(overlap=overlap), nics(latency_s=1e-3)):
        assert found.step_s == pytest.approx(profile.step_s)
    assert profile.step_s == pytest.approx(0.3 + 0.02 + 0.03)


@pytest.mark.parametrize("mode", (SYNC, ASYNC))
def test_one_worker_of_a_server_equals_its_measured_step(mode: dict[str, Any]) -> None:
    measured_s = 0.37
    found = analytic_prediction(ten_layers(), TrainingMode(**mode), nics(), one_worker_s=measured_s)
    assert found.step_s == pytest.approx(measured_s)


@pytest.mark.slow  # long asynchronous runs
@settings(max_examples=tries(20))
@given(
    workers=st.integers(1, 12),
    shards=st.integers(1, 3),
    rate=st.sampled_from((0.05e9, 0.3e9, 2e9)),
    overlap=st.booleans(),
    jitter=st.sampled_from((0.0, 0.3)),
)
def test_asynchronous_never_exceeds_what_the_servers_pass(**drawn: Any) -> None:
    profile = ten_layers()
    mode = TrainingMode(**ASYNC, workers=drawn["workers"], shards=drawn["shards"], overlap=drawn["overlap"])
    limit = profile.batch * drawn["shards"] * drawn["rate"] / profile.total_bytes
    net = nics(worker=drawn["rate"], server=drawn["rate"])
    for found in both(profile, mode, net, Disturbance(jitter=drawn["jitter"])):
        assert found.bound_samples_per_s == pytest.approx(limit)
        # The event level counts whole steps, of which up to a part per worker was served before it began to count.
        assert found.samples_per_s <= limit * (1.0 + 1e-9 if found.model == "analytic" else 1.05)


@pytest.mark.slow
def test_asynchronous_saturates_at_that_limit() -> None:
    """Once workers are out of step: equal ones leave either direction of the servers idle while all use the other."""
    profile, mode = one_tensor(), TrainingMode(**ASYNC, workers=24, shards=2)
    limit = profile.batch * 2 * 1e9 / profile.total_bytes
    analytic, uneven = both(profile, mode, nics(), Disturbance(jitter=1.0))
    assert analytic.samples_per_s == pytest.approx(limit, rel=0.15)
    assert uneven.samples_per_s == pytest.approx(limit, rel=0.1)
    equal = event_prediction(profile, mode, nics())
    assert limit / 2 < equal.samples_per_s < 0.8 * limit


@pytest.mark.parametrize("factor", (1.5, 3.0))
def test_a_slow_worker_bounds_synchronous_throughput(factor: float) -> None:
    profile, slow = ten_layers(), Disturbance(slow={2: factor})
    for mode in (TrainingMode(workers=4), TrainingMode(**SYNC, workers=4, shards=4)):
        for found in both(profile, mode, nics(), slow):
            assert found.samples_per_s <= 4 * profile.batch / (profile.compute_s * factor) * (1 + 1e-9)
            assert found.samples_per_s == pytest.approx(4 * profile.batch / (profile.compute_s * factor), rel=0.25)


@pytest.mark.slow
def test_a_slow_worker_costs_asynchronous_training_its_share_only() -> None:
    profile, factor, workers = ten_layers(), 3.0, 6
    mode = TrainingMode(**ASYNC, workers=workers, shards=6)
    net = nics(worker=50e9, server=50e9)
    share = (workers - 1 + 1 / factor) / workers
    equal = both(profile, mode, net)
    for even, uneven in zip(equal, both(profile, mode, net, Disturbance(slow={2: factor})), strict=True):
        assert uneven.samples_per_s / even.samples_per_s == pytest.approx(share, rel=0.02)


def test_staleness_is_the_number_of_the_others_and_more_for_the_slow_one() -> None:
    mode = TrainingMode(**ASYNC, workers=5)
    for found in both(ten_layers(), mode, nics()):
        assert found.staleness == pytest.approx(4, rel=0.02)
    for found in both(ten_layers(), mode, nics(), Disturbance(slow={0: 2.0})):
        assert found.staleness is not None and found.staleness_worst is not None
        assert found.staleness == pytest.approx(4, rel=0.1)
        assert found.staleness_worst > 6
    for found in both(ten_layers(), TrainingMode(workers=5), nics()):
        assert found.staleness is None


def test_backup_workers_leave_out_the_slow_one() -> None:
    slow = Disturbance(slow={1: 4.0})
    with_all = both(ten_layers(), TrainingMode(**SYNC, workers=5, shards=5), nics(), slow)
    without = both(ten_layers(), TrainingMode(**SYNC, workers=5, shards=5, backup_workers=1), nics(), slow)
    for waited, dropped in zip(with_all, without, strict=True):
        assert dropped.step_s < waited.step_s / 2.5
        assert dropped.samples_per_s == pytest.approx(4 * 32 / dropped.step_s)


@pytest.mark.slow
def test_more_bandwidth_is_never_slower() -> None:
    for kind in ({}, SYNC, ASYNC):
        rates = (0.05e9, 0.2e9, 1e9, 5e9)
        for model in (0, 1):
            found = [
                both(ten_layers(), TrainingMode(**kind, workers=4), nics(worker=rate, server=rate))[model]
                for rate in rates
            ]
            speeds = [one.samples_per_s for one in found]
            assert speeds == sorted(speeds)


def test_asynchronous_workers_are_the_mean_of_some_runs() -> None:
    mode, net = TrainingMode(**ASYNC, workers=3), nics(worker=0.5e9, server=0.5e9)
    runs = [event_prediction(ten_layers(), mode, net, Disturbance(seed=seed), draws=1, steps=6) for seed in (5, 6, 7)]
    mean = event_prediction(ten_layers(), mode, net, Disturbance(seed=5), draws=3, steps=6)
    assert len({run.samples_per_s for run in runs}) == 3
    assert mean.samples_per_s == pytest.approx(sum(run.samples_per_s for run in runs) / 3)
    assert mean.step_s == pytest.approx(sum(mean.parts_s.values())) == pytest.approx(3 * 32 / mean.samples_per_s)
    stale = [run.staleness for run in runs]
    assert min(stale) <= mean.staleness <= max(stale)


def test_policies_change_when_layers_arrive_and_not_how_much_is_sent() -> None:
    """In order, the first layer is there before the last: its forward pass begins earlier than when all take turns."""
    steps = {
        policy: event_prediction(ten_layers(), TrainingMode(**SYNC, policy=policy), nics(worker=0.3e9)).step_s
        for policy in ("multiplexed", "fifo", "priority", "windowed")
    }
    assert steps["fifo"] < steps["multiplexed"]
    assert steps["priority"] == pytest.approx(steps["fifo"])
    assert steps["fifo"] < steps["windowed"] * (1 + 1e-9) < steps["multiplexed"]


def test_windows_end_at_the_other_policies() -> None:
    def step_s(window_bytes: float) -> float:
        mode = TrainingMode(**SYNC, policy="windowed", window_bytes=window_bytes)
        return event_prediction(ten_layers(), mode, nics(worker=0.3e9)).step_s

    fifo_s = event_prediction(ten_layers(), TrainingMode(**SYNC, policy="fifo"), nics(worker=0.3e9)).step_s
    assert step_s(0) == pytest.approx(fifo_s)
    assert step_s(1e12) == pytest.approx(fifo_s)
    assert step_s(2e6) > fifo_s


def test_lower_layers_first_helps_where_layers_need_not_wait_for_the_step() -> None:
    def speed(policy: Any) -> float:
        mode = TrainingMode(**SYNC, workers=8, policy=policy, barrier="layer")
        return event_prediction(ten_layers(), mode, nics()).samples_per_s

    assert speed("priority") > 1.05 * speed("fifo")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run() -> None:
    mode, noise = TrainingMode(**ASYNC, workers=4), Disturbance(jitter=0.3, seed=7)
    first, second = (event_prediction(ten_layers(), mode, nics(), noise).samples_per_s for _ in range(2))
    assert first == second
    assert event_prediction(ten_layers(), mode, nics(), Disturbance(jitter=0.3, seed=8)).samples_per_s != first


@pytest.mark.parametrize("workers", (1, 2, 4, 8, 16))
def test_downloads_hide_behind_forward_passes_and_uploads_behind_backward_ones(workers: int) -> None:
    """No gradient is there before all parameters are."""
    profile = ten_layers()
    phase_s = workers * profile.total_bytes / 1e9
    least_s = max(phase_s, profile.forward_s) + max(phase_s, profile.backward_s)
    for found in both(profile, TrainingMode(**SYNC, workers=workers, policy="fifo"), nics()):
        assert least_s * (1 - 1e-9) <= found.step_s <= 1.15 * least_s
