"""Catalogued clusters answer for more devices than their entry names."""

from forerun.search.answer.searches import search_request
from forerun.search.request.request import Request


def test_a_hundred_thousand_devices_are_answered() -> None:
    request = Request(
        model="llama3-405b",
        cluster="dgx-h100",
        gpus="98304",
        global_batch=98_304,
        seq_len=8192,
        top=1,
        overrides={"tp": (8,), "cp": (1,), "mbs": (1,), "recompute": ("none",), "zero": (1,), "vpp": (1, 2)},
    )

    board = search_request(request)

    assert board.rows[0].gpus == 98_304
    assert 0.2 < board.rows[0].mfu < 0.7
