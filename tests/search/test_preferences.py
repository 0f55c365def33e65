"""What practice prefers: amounts of single preferences, and rows that an engineer would not start."""

from dataclasses import replace
from typing import Any

import pytest

from forerun.search import Request, search
from forerun.search.order.worth import worth_of
from forerun.search.request.resolve import resolve
from forerun.spaces.clusters import load_cluster
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.strategies.defaults import default_choices

FIELDS: dict[str, Any] = {"model": "llama2-70b", "cluster": "a100-pcie", "global_batch": 256, "gpus": "64"}


@pytest.mark.parametrize(
    ("seq_len", "cp", "share"), [(16384, 2, 0.0), (8192, 1, 0.0), (8192, 2, 0.03), (4096, 2, 0.21), (4096, 4, 0.39)]
)
def test_short_pieces_of_a_sequence_count_against_a_strategy(seq_len: int, cp: int, share: float) -> None:
    context = resolve(Request(**FIELDS, seq_len=seq_len)).context
    cut, whole = (parse_strategy(f"tp1 pp8 dp{8 // cp} cp{degree} mbs1") for degree in (cp, 1))

    assert worth_of(context, cut, 1.0, 0.0) - worth_of(context, whole, 1.0, 0.0) == pytest.approx(share)


def test_a_thousand_tokens_per_rank_are_no_first_row() -> None:
    board = search(**FIELDS, seq_len=4096, overrides={"vpp": [5], "mbs": [1], "zero": [1]})

    assert board.rows[0].strategy.cp == 1
    assert any("cp below 8,192 tokens per rank" in note for note in board.notes)  # it is named with its gain


@pytest.mark.parametrize(
    ("ep", "share"), [(24, 0.0), (64, 0.02 + 0.05 * 2), (96, 0.02 + 0.05 * (1 + 0.415)), (144, 0.02 + 0.05 * 2)]
)
def test_experts_across_racks_count_against_a_strategy(ep: int, share: float) -> None:
    fields: dict[str, Any] = {"model": "kimi-k2", "cluster": "gb300-nvl72", "global_batch": 576, "seq_len": 4096}
    context = resolve(Request(**fields, gpus="576")).context
    spread, one = (parse_strategy(f"tp1 pp1 dp576 ep{degree} mbs1 zero1") for degree in (ep, 1))

    assert worth_of(context, spread, 1.0, 0.0) - worth_of(context, one, 1.0, 0.0) == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize(
    ("text", "than", "share"),
    [
        ("vpp11 schedule=interleaved", "vpp10 schedule=interleaved", 0.01 + 0.01 * 0.1375),
        ("vpp2 schedule=zb-v", "vpp2 schedule=interleaved", 0.05),
        ("schedule=dualpipe", "", 0.1),
    ],
)
def test_what_few_have_trained_with_counts_against_a_strategy(text: str, than: str, share: float) -> None:
    context = resolve(Request(**FIELDS | {"framework": "generic"}, seq_len=8192)).context
    rare, known = (parse_strategy(f"tp1 pp2 dp32 mbs1 {words}".strip()) for words in (text, than))

    assert worth_of(context, rare, 1.0, 0.0) - worth_of(context, known, 1.0, 0.0) == pytest.approx(share, abs=1e-4)


def test_states_that_replicas_need_not_share_make_no_row_of_their_own() -> None:
    """The same steps with more memory are a variant: nanotron's zero 0 beside zero 1."""
    fields: dict[str, Any] = {"cluster": "aws-p4de", "global_batch": 480, "seq_len": 4096, "gpus": "256"}
    rows = search("qwen2.5-72b", framework="nanotron", overrides={"tp": [4], "cp": [1]}, **fields).rows
    steps = [(row.strategy.pp, row.strategy.mbs, round(row.step_time_s, 1)) for row in rows]

    assert len(set(steps)) == len(steps)


def test_odd_tensor_degrees_are_tried_where_they_divide_a_node() -> None:
    context = resolve(Request(**FIELDS | {"gpus": "48", "global_batch": 48}, seq_len=4096)).context
    six = replace(load_cluster("a100-pcie"), devices_per_node=6)

    assert set(default_choices(context, (48,))["tp"]) == {1, 2, 4, 8, 16}
    assert {3, 6} <= set(default_choices(replace(context, cluster=six), (48,))["tp"])
