"""Runs that teach most about all candidates, and the laws of beliefs that runs are chosen by."""

import numpy as np
import pytest

from forerun.search.tune.informative import informative
from forerun.simulator.calibration import Belief
from forerun.spaces.errors import RequestError


def belief(log_time: list[float], deviations: list[float], noise: float = 1e-4) -> Belief:
    return Belief(log_time=np.array(log_time), covariance=np.diag(np.array(deviations) ** 2), noise=noise)


def test_the_most_uncertain_is_measured_for_accuracy() -> None:
    assert informative(belief([0.0, 0.02, 1.0], [0.05, 0.05, 0.2]), 1)[0][0] == 2


def test_a_hopeless_strategy_has_no_gradient() -> None:
    gains = belief([0.0, 0.02, 1.0], [0.05, 0.05, 0.2]).knowledge_gradients()
    assert gains.argmax() in (0, 1)
    assert gains[2] < 1e-3 * gains.max()


def test_the_gradient_is_the_fall_of_the_least_expected_time() -> None:
    """Two strategies, one certain: measuring the other is worth E[max(0, gap)] (closed form of a normal)."""
    spread, noise = 0.1, 1e-12
    gains = belief([0.0, 0.0], [0.0, spread], noise).knowledge_gradients()
    assert gains.argmax() == 1
    assert gains[1] == pytest.approx(spread / np.sqrt(2 * np.pi), rel=0.05)


def test_what_is_known_is_not_proposed_again() -> None:
    known = belief([0.0, 0.01, 0.02, 0.03], [0.1, 0.1, 0.1, 0.1])
    assert sorted(row for row, _ in informative(known, 2, known=[0, 1])) == [2, 3]
    with pytest.raises(RequestError, match="2 candidates are left, but 3"):
        informative(known, 3, known=[0, 1])


def test_one_of_two_that_err_together_is_enough() -> None:
    covariance = np.array([[0.01, 0.00999, 0.0], [0.00999, 0.01, 0.0], [0.0, 0.0, 0.008]])
    known = Belief(log_time=np.array([0.0, 0.001, 0.002]), covariance=covariance, noise=1e-6)
    rows = [row for row, _ in informative(known, 2)]
    assert 2 in rows


def test_no_exchange_of_one_run_leaves_less_uncertain() -> None:
    """Of all choices of three, none that differs in one run leaves a smaller mean standard deviation."""
    draw = np.random.default_rng(3)
    place = draw.uniform(0, 3, 12)
    covariance = np.exp(-0.5 * (place[:, None] - place[None, :]) ** 2)
    known = Belief(log_time=np.zeros(12), covariance=covariance, noise=1e-3)

    def left(rows: list[int]) -> float:
        own = covariance[np.ix_(rows, rows)] + 1e-3 * np.eye(len(rows))
        after = covariance - covariance[:, rows] @ np.linalg.solve(own, covariance[rows])
        return float(np.sqrt(np.maximum(np.diag(after), 0)).mean())

    chosen = [row for row, _ in informative(known, 3)]
    assert len(set(chosen)) == 3
    for gone in chosen:
        for row in set(range(12)) - set(chosen):
            assert left([row, *(kept for kept in chosen if kept != gone)]) >= left(chosen) - 1e-9


def test_regret_falls_when_the_best_is_known() -> None:
    assert belief([0.0, 0.0], [0.1, 0.1]).expected_regret() > 0.03
    assert belief([0.0, 0.5], [0.01, 0.01]).expected_regret() == pytest.approx(0.0, abs=1e-9)
