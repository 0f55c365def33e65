"""Deadlines are met with a probability, from the interval of a row's step."""

import math
from dataclasses import replace

import pytest

from forerun.search import search
from forerun.search.answer.notes.goodput import SURE, probability_in_time, sure_days


def test_the_interval_is_read_back_as_probabilities() -> None:
    board = search(model="llama3-8b", cluster="dgx-h100", gpus=16, global_batch=64, seq_len=4096, tokens=1e11)
    row = board.rows[0]
    assert row.train_days and row.step_time_low_s and row.step_time_high_s and row.interval_level
    tail = (1 - row.interval_level) / 2

    for bound, chance in ((row.step_time_low_s, tail), (row.step_time_high_s, 1 - tail)):
        days = row.train_days * bound / row.step_time_s
        assert probability_in_time(row, days) == pytest.approx(chance)
    assert probability_in_time(row, sure_days(row)) == pytest.approx(SURE)
    assert math.isclose(sure_days(replace(row, step_time_low_s=None)), row.train_days)


def test_failures_make_a_training_later() -> None:
    fields = {"model": "llama3-8b", "cluster": "dgx-h100", "gpus": 16, "global_batch": 64, "seq_len": 4096}
    plain = search(**fields, tokens=1e11).rows[0]  # type: ignore[arg-type]  # keywords of a request
    failing = search(**fields, tokens=1e11, goodput="failures=1e-3").rows[0]  # type: ignore[arg-type]  # likewise
    days = sure_days(plain)

    assert sure_days(failing) > days
    assert (probability_in_time(failing, days) or 0.0) < SURE
