"""Switches that make room in memory are named where they lead to a faster strategy, and only there."""

import re

import pytest

from forerun.search import search
from forerun.search.answer.notes.making_room import ROOM, WORTH
from forerun.search.board.leaderboard import Leaderboard

SMALL_CARDS = {"cluster": "rtx4090-box", "gpus": 8, "global_batch": 64, "seq_len": 4096}


def room(board: Leaderboard) -> str:
    return " ".join(note for note in board.advice if note.startswith(ROOM))


@pytest.mark.parametrize("framework", ["fsdp", "torchtitan"])
def test_what_a_switch_gains_is_what_the_search_with_it_finds(framework: str) -> None:
    fields = {"model": "qwen2.5-3b", **SMALL_CARDS, "framework": framework}
    plain = search(**fields)
    (note,) = [note for note in plain.advice if note.startswith(ROOM)]
    with_it = search(**fields, switches={"chunked-loss": "on"})
    gain = plain.rows[0].step_time_s / with_it.rows[0].step_time_s - 1

    assert gain > WORTH
    assert f"--with chunked-loss {gain:+.0%}" in note
    assert with_it.rows[0].name in note
    assert "chunked-loss" not in room(with_it)


def test_a_framework_that_starts_more_is_named_where_no_flag_of_this_one_makes_room() -> None:
    fields = {"model": "qwen2.5-3b", **SMALL_CARDS}
    plain = search(**fields, framework="fsdp")
    (name,) = re.findall(r"--framework (\S+) \+", room(plain))
    other = search(**fields, framework=name)

    assert other.rows[0].step_time_s * (1 + WORTH) <= plain.rows[0].step_time_s
    assert not other.rows[0].lacks_launch_file


def test_activations_on_the_host_are_named_where_they_gain() -> None:
    fields = {"model": "llama3-70b", "cluster": "tpu-v6e-pod", "gpus": 256, "global_batch": 1024, "seq_len": 8192}
    plain = search(**fields)
    away = search(**fields, switches={"activation-offload": "on"})
    gain = plain.rows[0].step_time_s / away.rows[0].step_time_s - 1

    assert ("--with activation-offload" in room(plain)) == (gain >= WORTH)


def test_nothing_is_said_where_memory_decides_nothing() -> None:
    board = search(model="qwen3-0.6b", cluster="dgx-h100", gpus=8, global_batch=64, seq_len=2048)

    assert not room(board)
