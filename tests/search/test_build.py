"""One leaderboard, by whatever way its rows were found."""

from functools import partial

import pytest

from forerun.search.answer.searches import explore_request, search_request
from forerun.search.explore.samplers import Exploring
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.sweep.chunks import recorded

# A batch that few degrees divide, on devices that its best strategies fill.
REQUEST = Request(
    model="llama3-8b",
    cluster="dgx-a100-40",
    gpus="16",
    global_batch=62,
    seq_len=4096,
    overrides={"vpp": [1], "cp": [1], "placement": [0]},
)


@pytest.mark.slow
def test_the_notes_of_a_request_do_not_depend_on_who_searches() -> None:
    board = search_request(REQUEST)
    explored = explore_request(REQUEST, exploring=Exploring(per_stage=(), sampler="local", evaluations=20))
    record = recorded(partial(search_request, REQUEST))

    assert len(board.advice) > 1
    assert explored.rows[0] == board.rows[0]
    assert explored.advice == board.advice
    assert record["notes"] == list(board.notes)


@pytest.mark.slow
def test_a_setting_is_searched_as_its_request_is() -> None:
    assert search_request(resolve(REQUEST)).rows == search_request(REQUEST).rows


def test_a_request_comes_back_from_plain_data() -> None:
    full = Request(
        model="llama3-8b",
        cluster="dgx-h100",
        global_batch=64,
        seq_len=4096,
        gpus="8..16",
        tokens=1e12,
        top=5,
        overrides={"tp": ["1", "2"]},
        ignored_config_fields=("a",),
    )

    assert Request.from_json(full.to_json()) == full
    assert Request.from_json(resolve(full).to_json()).to_json().items() >= full.to_json().items()
