"""Event level and analytic model agree where the analytic one leaves nothing out: one tensor and no overlap."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mode_profiles import nics, one_tensor, ten_layers
from profiles import tries

from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.modes import TrainingMode, analytic_prediction, throughput_curve
from forerun.simulator.modes.events import event_prediction


@settings(max_examples=tries(25))
@given(
    workers=st.integers(1, 6),
    shards=st.integers(1, 4),
    server=st.sampled_from((0.5e9, 1e9, 4e9)),
    latency_s=st.sampled_from((0.0, 1e-3)),
    policy=st.sampled_from(("multiplexed", "fifo", "priority", "windowed")),
    update_s=st.sampled_from((0.0, 0.01)),
)
def test_synchronous_servers(**drawn: Any) -> None:
    net = nics(server=drawn["server"], latency_s=drawn["latency_s"])
    mode = TrainingMode(
        exchange="parameter-server",
        workers=drawn["workers"],
        shards=drawn["shards"],
        policy=drawn["policy"],
        overlap=False,
    )
    profile = one_tensor(update_s=drawn["update_s"])
    fine, analytic = event_prediction(profile, mode, net, steps=4), analytic_prediction(profile, mode, net)
    assert fine.step_s == pytest.approx(analytic.step_s, rel=1e-9)


@pytest.mark.parametrize("workers", (1, 2, 3, 8, 20))
def test_ring_round_by_round_and_as_one_task(workers: int) -> None:
    mode, net = TrainingMode(workers=workers, overlap=False), nics(latency_s=1e-3)
    profile = one_tensor(update_s=0.01)
    fine, analytic = event_prediction(profile, mode, net, steps=4), analytic_prediction(profile, mode, net)
    assert fine.step_s == pytest.approx(analytic.step_s, rel=1e-9)


@pytest.mark.parametrize("workers", (2, 4))
def test_co_located_servers_with_a_shard_on_every_node(workers: int) -> None:
    mode = TrainingMode(exchange="parameter-server", workers=workers, shards=workers, colocated=True, overlap=False)
    fine, analytic = (
        event_prediction(one_tensor(), mode, nics(), steps=4),
        analytic_prediction(one_tensor(), mode, nics()),
    )
    assert fine.step_s == pytest.approx(analytic.step_s, rel=1e-9)


def test_buckets_of_an_all_reduce_agree_with_overlap_too() -> None:
    mode, net = TrainingMode(workers=4, bucket_bytes=12e6), nics(worker=0.2e9)
    fine, analytic = event_prediction(ten_layers(), mode, net), analytic_prediction(ten_layers(), mode, net)
    assert analytic.parts_s["exchange"] > 0.05
    assert fine.step_s == pytest.approx(analytic.step_s, rel=1e-9)


def test_a_slow_worker_delays_a_ring_the_same_in_both() -> None:
    noise = Disturbance(slow={1: 1.5})
    mode = TrainingMode(workers=4, overlap=False)
    fine = event_prediction(one_tensor(), mode, nics(), noise)
    # Two neighbours of the slow worker run ahead of it by up to a round, so that the ring is not quite a barrier.
    assert fine.step_s == pytest.approx(analytic_prediction(one_tensor(), mode, nics(), noise).step_s, rel=1e-6)


def test_one_asynchronous_worker() -> None:
    mode = TrainingMode(exchange="parameter-server", synchronous=False, overlap=False)
    fine, analytic = event_prediction(one_tensor(), mode, nics()), analytic_prediction(one_tensor(), mode, nics())
    assert fine.step_s == pytest.approx(analytic.step_s, rel=1e-9)


@pytest.mark.slow  # events of many workers
def test_the_face_shows_the_disagreement() -> None:
    mode = TrainingMode(exchange="parameter-server", synchronous=False)
    curve = throughput_curve(ten_layers(), mode, nics(), (1, 2, 4, 8))
    first, *rest = curve.points
    assert first.disagreement == pytest.approx(0, abs=1e-9)
    assert all(point.disagreement is not None and abs(point.disagreement) < 0.35 for point in rest)
    assert any(abs(point.disagreement or 0) > 0.02 for point in rest)
    alone = throughput_curve(ten_layers(), mode, nics(), (4,), fidelity="analytic").points[0]
    assert alone.events is None and alone.disagreement is None
