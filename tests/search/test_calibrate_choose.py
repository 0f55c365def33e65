"""Which run to measure next: the one that can change the choice, not the one that is merely unknown."""

import numpy as np
import pytest

from forerun.search.answer.next_runs import propose
from forerun.simulator.calibration import Belief
from forerun.spaces.errors import RequestError


def belief(log_time: list[float], deviations: list[float], noise: float = 1e-4) -> Belief:
    return Belief(log_time=np.array(log_time), covariance=np.diag(np.array(deviations) ** 2), noise=noise)


def test_a_hopeless_strategy_is_not_measured_for_the_choice() -> None:
    known = belief([0.0, 0.02, 1.0], [0.05, 0.05, 0.2])
    assert propose(known, 1)[0].row in (0, 1)
    assert propose(known, 1, rule="accuracy")[0].row == 2


def test_the_gain_is_the_fall_of_the_least_expected_time() -> None:
    """Two strategies, one certain: measuring the other is worth E[max(0, gap)] (closed form of a normal)."""
    spread, noise = 0.1, 1e-12
    known = belief([0.0, 0.0], [0.0, spread], noise)
    gain = propose(known, 1)[0]
    assert gain.row == 1
    assert gain.gain == pytest.approx(spread / np.sqrt(2 * np.pi), rel=0.05)


def test_what_is_known_is_not_proposed_again() -> None:
    known = belief([0.0, 0.01, 0.02, 0.03], [0.1, 0.1, 0.1, 0.1])
    rows = [proposal.row for proposal in propose(known, 2, known=[0, 1])]
    assert sorted(rows) == [2, 3]
    with pytest.raises(RequestError, match="2 candidates are left, but 3"):
        propose(known, 3, known=[0, 1])


def test_one_of_two_that_err_together_is_enough() -> None:
    covariance = np.array([[0.01, 0.00999, 0.0], [0.00999, 0.01, 0.0], [0.0, 0.0, 0.008]])
    known = Belief(log_time=np.array([0.0, 0.001, 0.002]), covariance=covariance, noise=1e-6)
    rows = [proposal.row for proposal in propose(known, 2, rule="accuracy")]
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

    chosen = [proposal.row for proposal in propose(known, 3, rule="accuracy")]
    assert len(set(chosen)) == 3
    for gone in chosen:
        for row in set(range(12)) - set(chosen):
            assert left([row, *(kept for kept in chosen if kept != gone)]) >= left(chosen) - 1e-9


def test_regret_falls_when_the_best_is_known() -> None:
    assert belief([0.0, 0.0], [0.1, 0.1]).expected_regret() > 0.03
    assert belief([0.0, 0.5], [0.01, 0.01]).expected_regret() == pytest.approx(0.0, abs=1e-9)


def test_an_unknown_reason_names_the_known_ones() -> None:
    with pytest.raises(RequestError, match="did you mean regret"):
        propose(belief([0.0, 1.0], [0.1, 0.1]), 1, rule="regrets")
