"""A batch that few splits divide is answered, and the batch nearby is named that is worth having."""

import pytest

from forerun.search import search
from forerun.search.board.leaderboard import Leaderboard


def board(batch: int, **fields: object) -> Leaderboard:
    return search("llama3-8b", cluster="dgx-h100", gpus=16, global_batch=batch, seq_len=4096, **fields)


def said(found: Leaderboard) -> list[str]:
    return [note for note in found.notes if "few splits divide" in note]


@pytest.mark.parametrize(("batch", "rounder"), [(97, 96), (127, 128)])
def test_the_gain_is_that_of_the_search_with_the_other_batch(batch: int, rounder: int) -> None:
    odd, even = board(batch).rows[0], board(rounder).rows[0]
    gain = even.tokens_per_s_per_gpu / odd.tokens_per_s_per_gpu - 1

    assert said(board(batch)) == [
        f"few splits divide a global batch of {batch}; with {rounder} the best trains {gain:.0%} more tokens per "
        f"second and GPU: {even.strategy} on 16 GPUs"
    ]
    assert gain > 0.05


@pytest.mark.parametrize("batch", [64, 96, 128])
def test_a_batch_that_many_split_needs_no_other(batch: int) -> None:
    assert said(board(batch)) == []


def test_where_another_batch_gains_nothing_none_is_named() -> None:
    assert said(board(127, overrides={"tp": [4], "pp": [2], "cp": [2], "mbs": [1], "vpp": [1]})) == []


def test_other_aims_than_speed_are_left_alone() -> None:
    assert said(board(127, objective="headroom")) == []
