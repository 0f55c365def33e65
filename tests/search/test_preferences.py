"""What practice prefers: amounts of single preferences, and rows that an engineer would not start."""

from dataclasses import replace
from typing import Any

import pytest

from forerun.search import Request, search
from forerun.search.request.preferences import worth_s
from forerun.search.request.resolve import resolve
from forerun.spaces.clusters import load_cluster
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.strategies.defaults import default_choices

FIELDS: dict[str, Any] = {"model": "llama2-70b", "cluster": "a100-pcie", "global_batch": 256, "gpus": "64"}


@pytest.mark.parametrize(
    ("seq_len", "cp", "share"), [(16384, 2, 0.0), (8192, 1, 0.0), (8192, 2, 0.03), (4096, 2, 0.13), (4096, 4, 0.23)]
)
def test_short_pieces_of_a_sequence_count_against_a_strategy(seq_len: int, cp: int, share: float) -> None:
    context = resolve(Request(**FIELDS, seq_len=seq_len)).context
    cut, whole = (parse_strategy(f"tp1 pp8 dp{8 // cp} cp{degree} mbs1") for degree in (cp, 1))

    assert worth_s(context, cut, 1.0, 0.0) - worth_s(context, whole, 1.0, 0.0) == pytest.approx(share)


def test_a_thousand_tokens_per_rank_are_no_first_row() -> None:
    board = search(**FIELDS, seq_len=4096, overrides={"vpp": [5], "mbs": [1], "zero": [1]})

    assert board.rows[0].strategy.cp == 1
    assert any("cp below 8,192 tokens per rank" in note for note in board.notes)  # it is named with its gain


def test_odd_tensor_degrees_are_tried_where_they_divide_a_node() -> None:
    context = resolve(Request(**FIELDS | {"gpus": "48", "global_batch": 48}, seq_len=4096)).context
    six = replace(load_cluster("a100-pcie"), devices_per_node=6)

    assert set(default_choices(context, (48,))["tp"]) == {1, 2, 4, 8, 16}
    assert {3, 6} <= set(default_choices(replace(context, cluster=six), (48,))["tp"])
