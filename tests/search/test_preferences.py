"""What practice prefers: amounts of single preferences, and rows that an engineer would not start."""

from dataclasses import replace
from typing import Any

import pytest

from forerun.search import Request, search
from forerun.search.order.preferences import PREFERENCES, against
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


COUNTED = [
    ("tp without sequence parallelism", "tp2 dp32 mbs1", "tp2 dp32 mbs1 sp", 0.08),
    ("cp below 8,192 tokens per rank", "cp2 dp32 mbs1", "dp64 mbs1", 0.03),
    ("cp with several sequences per micro-batch", "cp2 dp32 mbs2", "cp2 dp32 mbs1", 0.08),
    ("tp across nodes", "tp16 dp4 mbs1 sp", "tp8 dp8 mbs1 sp", 0.1),
    ("tp that is no power of two", "tp6 dp8 mbs1 sp", "tp4 dp8 mbs1 sp", 0.08),
    ("ep across nodes", "dp32 ep16 mbs1", "dp32 ep8 mbs1", 0.02),
    ("experts cut by etp", "tp2 dp32 etp2 mbs1", "tp2 dp32 mbs1", 0.01),
    ("optimizer states on every replica", "dp64 mbs1", "dp64 mbs1 zero1", 0.0045),
    ("more pipeline stages", "pp4 dp16 mbs1", "pp2 dp32 mbs1", 0.003),
    ("odd number of stages", "pp3 dp16 mbs1", "pp2 dp32 mbs1", 0.01),
    ("more virtual stages", "pp2 dp32 vpp4 schedule=interleaved", "pp2 dp32 vpp2 schedule=interleaved", 0.01),
    (
        "an uncommon number of virtual stages",
        "pp2 dp32 vpp11 schedule=interleaved",
        "pp2 dp32 vpp10 schedule=interleaved",
        0.01,
    ),
    (
        "a schedule that few have trained with",
        "pp2 dp32 vpp2 schedule=zb-v",
        "pp2 dp32 vpp2 schedule=interleaved",
        0.05,
    ),
    ("a schedule that few have trained with", "pp2 dp32 schedule=dualpipe", "pp2 dp32", 0.1),
    (
        "tokens under computation, which one pair of runs checked",
        "pp2 dp32 ep2 vpp2 schedule=interleaved with=moe-overlap",
        "pp2 dp32 ep2 vpp2 schedule=interleaved",
        0.04,
    ),
    ("scattered placement", "pp2 dp32 placement=tp-cp-ep-pp-dp", "pp2 dp32", 0.005),
    ("recompute", "dp64 recompute=full", "dp64", 0.002),
    ("uneven stages", "pp2 dp32 split=light-ends", "pp2 dp32", 0.002),
]


@pytest.mark.parametrize(
    ("words", "text", "than", "share"), COUNTED, ids=[f"{words}: {text}" for words, text, *_ in COUNTED]
)
def test_what_practice_avoids_counts_its_share_of_a_step(words: str, text: str, than: str, share: float) -> None:
    context = resolve(Request(**FIELDS | {"framework": "generic"}, seq_len=8192)).context
    avoided, usual = parse_strategy(text), parse_strategy(than)
    found = against(context, avoided, usual)

    assert found[words] == pytest.approx(share)
    assert worth_of(context, avoided, 1.0, 0.0) - worth_of(context, usual, 1.0, 0.0) == pytest.approx(
        sum(found.values()) - sum(against(context, usual, avoided).values())
    )


def test_every_preference_is_counted_somewhere() -> None:
    racks = "ep across racks"
    assert {one.words for one in PREFERENCES} == {racks, *(words for words, *_ in COUNTED)}


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
