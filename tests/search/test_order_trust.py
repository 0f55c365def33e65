"""How often an order holds: a curve over the predicted gap, and the sentence below a leaderboard."""

import dataclasses
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from forerun.search import search
from forerun.search.answer.explain.why import order_holds, trust, why
from forerun.search.board.rows import Row


@pytest.fixture(scope="module")
def rows() -> Sequence[Row]:
    return search("llama3-8b", cluster="dgx-h100", gpus="16", global_batch=64, seq_len=4096, top=50).rows


def test_equal_predictions_are_a_toss_up_and_more_of_a_gap_is_more_certain() -> None:
    shares = [order_holds(gap) for gap in np.linspace(0.0, 10.0, 200)]

    assert shares[0] == 0.5 and 0.99 < shares[-1] <= 1.0
    assert all(low < high for low, high in pairwise(shares))


def test_the_explanation_says_how_often_a_gap_like_that_of_the_runner_up_holds(rows: Sequence[Row]) -> None:
    gap = abs(rows[1].step_time_s / rows[0].step_time_s - 1)

    assert gap > 0.0005
    assert f"At a predicted gap of {gap:.1%}, measured order agreed {order_holds(gap):.0%} of the time." in why(rows)


def test_what_was_not_measured_is_not_said(rows: Sequence[Row]) -> None:
    for unmeasured in ({"gpus": 32}, {"step_time_s": rows[0].step_time_s}):
        assert trust(rows[0], dataclasses.replace(rows[-1], **unmeasured)) == ""
    assert trust(rows[0], rows[-1]) != ""


def test_intervals_of_a_calibration_say_it_better(rows: Sequence[Row]) -> None:
    calibrated = dataclasses.replace(rows[0], step_time_low_s=0.9, step_time_high_s=1.1, interval_level=0.9)

    assert trust(calibrated, rows[-1]) == ""
