"""The analytic model against the phase formulas of data-parallel SGD, derived here from named numbers."""

import math
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
from mode_profiles import nics, one_tensor, ten_layers

from forerun.simulator.costs.slowest import expected_maximum, expected_order, lognormal_factors
from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.modes import TrainingMode, analytic_prediction
from forerun.simulator.modes.queueing import mean_value_analysis, mean_value_classes

M, B, C, BATCH = 100e6, 1e9, 0.09, 32


def ps(**more: object) -> TrainingMode:
    return TrainingMode(exchange="parameter-server", overlap=False, **more)  # type: ignore[arg-type]


def test_one_node_is_download_compute_upload_update() -> None:
    found = analytic_prediction(one_tensor(update_s=0.005), ps(), nics())
    assert found.step_s == pytest.approx(M / B + C + M / B + 0.005)


@pytest.mark.parametrize(("workers", "shards"), list(product((1, 2, 3, 8), (1, 2, 4))))
def test_synchronous_server_phases(workers: int, shards: int) -> None:
    found = analytic_prediction(one_tensor(), ps(workers=workers, shards=shards), nics())
    phase_s = M * max(1, workers / shards) / B
    assert found.step_s == pytest.approx(2 * phase_s + C)
    assert found.samples_per_s == pytest.approx(workers * BATCH / (2 * phase_s + C))


@pytest.mark.parametrize("workers", (1, 2, 5, 16))
def test_ring_all_reduce(workers: int) -> None:
    alpha = 1e-4
    found = analytic_prediction(one_tensor(), TrainingMode(workers=workers, overlap=False), nics(latency_s=alpha))
    assert found.step_s == pytest.approx(C + 2 * (workers - 1) * (alpha + M / (workers * B)))


def test_mean_value_analysis_of_two_customers_by_hand() -> None:
    # Z = 1, D = (0.5, 0.25). n = 1: X = 1/1.75, Q = D/1.75. n = 2: R = D (1 + Q).
    first = (0.5 * (1 + 0.5 / 1.75), 0.25 * (1 + 0.25 / 1.75))
    rate = 2 / (1 + sum(first))
    found = mean_value_analysis(1.0, (0.5, 0.25), 2)
    assert found.cycles_per_s == pytest.approx(rate)
    assert found.queue == pytest.approx([rate * part for part in first])


def test_mean_value_analysis_of_one_station_is_the_machine_repairman() -> None:
    """M/M/1//n: the share of time in which all n are away is 1 / sum n!/(n-k)! (D/Z)^k (queueing textbooks)."""
    think_s, demand_s, customers = 2.0, 0.7, 6
    weights = [math.perm(customers, k) * (demand_s / think_s) ** k for k in range(customers + 1)]
    busy = 1 - 1 / sum(weights)
    assert mean_value_analysis(think_s, (demand_s,), customers).cycles_per_s == pytest.approx(busy / demand_s)


def test_equal_classes_of_one_come_near_the_exact_solution() -> None:
    exact = mean_value_analysis(1.0, (0.2, 0.1), 4)
    about = mean_value_classes([1.0] * 4, [1] * 4, (0.2, 0.1))
    assert about.cycles_per_s == pytest.approx(exact.cycles_per_s, rel=0.03)


@pytest.mark.parametrize("workers", (1, 2, 4, 16))
def test_asynchronous_lies_between_its_bounds(workers: int) -> None:
    found = analytic_prediction(one_tensor(), ps(workers=workers, shards=2, synchronous=False), nics())
    rate, demand_s = found.samples_per_s / BATCH, M / (2 * B)
    assert rate <= min(workers / (C + 4 * demand_s), 1 / demand_s) * (1 + 1e-12)
    # Balanced job bounds: no worse than a queue of all others at every station.
    assert rate >= workers / (C + 4 * demand_s * workers) * (1 - 1e-12)


def test_expected_maximum_of_two_dice() -> None:
    assert expected_maximum([1, 2, 3, 4, 5, 6], 2) == pytest.approx(161 / 36)
    assert expected_order([1, 2, 3, 4, 5, 6], {}, 2, 2) == pytest.approx(161 / 36)
    assert expected_order([1, 2, 3, 4, 5, 6], {}, 2, 1) == pytest.approx(7 - 161 / 36)


def test_expected_order_by_counting_all_cases() -> None:
    samples, slow, workers = [1.0, 2.0, 4.0], {1: 1.5}, 4
    cases = [
        sorted(x * slow.get(worker, 1.0) for worker, x in enumerate(drawn))
        for drawn in product(samples, repeat=workers)
    ]
    for wait_for in range(1, workers + 1):
        mean = sum(case[wait_for - 1] for case in cases) / len(cases)
        assert expected_order(samples, slow, workers, wait_for) == pytest.approx(mean)
        alike = expected_order(samples, {}, workers, wait_for)
        counted = sum(sorted(drawn)[wait_for - 1] for drawn in product(samples, repeat=workers)) / len(cases)
        assert alike == pytest.approx(counted)


def test_the_largest_of_normal_draws_is_as_blom_says() -> None:
    """mean + sd invPhi((W - 0.375) / (W + 0.25)) (Blom 1958)."""
    samples = np.random.default_rng(1).normal(10, 1, 20_000)
    for workers in (2, 8, 32):
        blom = 10 + NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25))
        assert expected_maximum(samples, workers) == pytest.approx(blom, abs=0.05)


def test_lognormal_factors_have_mean_one_and_the_asked_deviation() -> None:
    factors = lognormal_factors(0.3)
    assert factors.mean() == pytest.approx(1)
    assert factors.std() == pytest.approx(0.3, rel=0.05)


def test_jitter_costs_the_expected_maximum() -> None:
    found = analytic_prediction(one_tensor(), TrainingMode(workers=4, overlap=False), nics(), Disturbance(jitter=0.2))
    still = analytic_prediction(one_tensor(), TrainingMode(workers=4, overlap=False), nics())
    expected_s = C * (expected_maximum(lognormal_factors(0.2), 4) - 1)
    assert found.step_s - still.step_s == pytest.approx(expected_s)


def test_sampled_step_times_replace_jitter() -> None:
    from dataclasses import replace

    sampled = replace(one_tensor(), step_factors=(0.5, 1.0, 1.5))
    found = analytic_prediction(sampled, TrainingMode(workers=2, overlap=False), nics())
    # E[max of two] of {0.5, 1, 1.5}: (0.5 + 3 * 1 + 5 * 1.5) / 9
    assert found.parts_s["straggler wait"] == pytest.approx(C * (11 / 9 - 1))


def test_parts_add_up_to_the_step() -> None:
    noise = Disturbance(jitter=0.1, slow={1: 1.5})
    for mode in (
        TrainingMode(workers=4),
        TrainingMode(exchange="parameter-server", workers=4, shards=2, backup_workers=1),
        TrainingMode(exchange="parameter-server", workers=4, shards=2, colocated=True, synchronous=False),
    ):
        found = analytic_prediction(ten_layers(update_s=0.01), mode, nics(), noise, one_worker_s=0.35)
        assert sum(found.parts_s.values()) == pytest.approx(found.step_s)


def test_whole_layers_leave_shards_uneven() -> None:
    """Layers of 10, 9 ... 1 MB in the order of the model, each to the emptiest of two shards: 29 and 26 MB."""
    even = analytic_prediction(ten_layers(), ps(workers=4, shards=2), nics())
    whole = analytic_prediction(ten_layers(), ps(workers=4, shards=2, placement="whole"), nics())
    fullest = max(
        sum(column) for column in zip(*ps(shards=2, placement="whole").shard_bytes(ten_layers()), strict=True)
    )
    assert fullest > 27.5e6
    assert whole.step_s - even.step_s == pytest.approx(2 * 4 * (fullest - 27.5e6) / B)
