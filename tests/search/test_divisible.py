"""Batches and numbers of GPUs nearby that divide better are named where that pays, by any factor."""

import pytest

from forerun.search import search
from forerun.search.board.leaderboard import Leaderboard


def board(batch: int, gpus: int = 16, **fields: object) -> Leaderboard:
    return search("llama3-8b", cluster="dgx-h100", gpus=gpus, global_batch=batch, seq_len=4096, **fields)


def said(found: Leaderboard) -> list[str]:
    return [note for note in found.advice if "badly" in note]


@pytest.mark.parametrize(("batch", "gpus", "better"), [(97, 16, 96), (127, 16, 128), (64, 24, 72)])
@pytest.mark.slow
def test_the_gain_is_that_of_the_search_with_the_other_batch(batch: int, gpus: int, better: int) -> None:
    found, even = board(batch, gpus), board(better, gpus).rows[0]
    gain = even.throughput_per_gpu / found.rows[0].throughput_per_gpu - 1

    text = f"global batch {batch} divides badly over {gpus} GPUs; {better} gives {gain:.0%} more tokens/s/GPU"
    assert gain > 0.05
    assert [note for note in said(found) if note.startswith(text)]


@pytest.mark.slow
def test_the_number_of_gpus_that_the_batch_divides_over_is_named() -> None:
    found, fewer = board(64, 72), board(64, 64).rows[0]
    gain = fewer.throughput_per_gpu / found.rows[0].throughput_per_gpu - 1

    assert [note for note in said(found) if f"64 GPUs give {gain:.0%} more tokens/s/GPU" in note]


@pytest.mark.slow
def test_fewer_gpus_that_degrees_take_are_named_with_what_they_give_in_all() -> None:
    """1,000 are 8 times 125: what 8 tensor ranks leave takes neither two context ranks nor an even number of stages."""
    fields = {"cluster": "dgx-h100", "global_batch": 1000, "seq_len": 8192, "overrides": {"tp": [8], "mbs": [1]}}
    found, fewer = (search("llama3-405b", gpus=gpus, **fields) for gpus in (1000, 960))
    (note,) = (note for note in said(found) if note.startswith("1000 GPUs divide badly; 960 GPUs give "))
    gain = fewer.rows[0].throughput_per_gpu / found.rows[0].throughput_per_gpu - 1

    assert f"{gain:.0%} more tokens/s/GPU and {0.96 * (1 + gain) - 1:.0%} more in all (" in note


@pytest.mark.parametrize("batch", [64, 96, 128])
def test_a_batch_that_divides_needs_no_other(batch: int) -> None:
    assert said(board(batch)) == []


def test_a_batch_whose_microbatches_divide_by_the_stages_is_named() -> None:
    """68 sequences over dp 4 are 17 microbatches, which no interleaved pipeline takes."""
    fields = {"cluster": "dgx-a100-80", "gpus": 64, "seq_len": 2048, "overrides": {"tp": [4, 8], "mbs": [1]}}
    uneven, even = (search("gpt3-39b", global_batch=batch, **fields) for batch in (68, 64))
    gain = even.rows[0].throughput_per_gpu / uneven.rows[0].throughput_per_gpu - 1

    assert uneven.rows[0].strategy.vpp == 1 and even.rows[0].strategy.vpp > 1
    (note,) = (note for note in said(uneven) if f"64 gives {gain:.0%} more" in note)
    evidence = next(other for other in uneven.advice if "measured runs" in other)
    assert uneven.advice.index(note) < uneven.advice.index(evidence), "what gains goes before what is known"


def test_where_another_batch_gains_nothing_none_is_named() -> None:
    assert said(board(127, overrides={"tp": [4], "pp": [2], "cp": [2], "mbs": [1], "vpp": [1]})) == []


def test_other_aims_than_speed_are_left_alone() -> None:
    assert said(board(127, objective="headroom")) == []
