"""Throughput against GPUs: every number that was searched, whether the leaderboard kept a row of it or not."""

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.search import Leaderboard, search
from forerun.search.report.details import resolved_request
from forerun.search.report.scaling import scaling_section, spread


@pytest.fixture(scope="module")
def board() -> Leaderboard:
    """Return rows of 32 GPUs only, for the fastest come first."""
    return search("llama3-8b", cluster="dgx-h100", gpus="4..32", global_batch=96, seq_len=4096, top=3)


def scaling_of(board: Leaderboard) -> str:
    return str(scaling_section(board, resolved_request(board)))


@pytest.mark.slow
def test_numbers_without_a_row_are_searched(board: Leaderboard) -> None:
    text = scaling_of(board)
    shown = [int(count) for count in re.findall(r"<strong>(\d+) GPUs</strong>", text)]

    assert {row.gpus for row in board.rows} < set(shown) == set(board.request["gpu_counts"])
    for count in board.request["gpu_counts"]:
        alone = search("llama3-8b", cluster="dgx-h100", gpus=count, global_batch=96, seq_len=4096, top=1)
        place = "rank 1" if count == board.rows[0].gpus else "searched for this page"
        assert f"<strong>{count} GPUs</strong> {alone.rows[0].strategy} ({place})" in text


@pytest.mark.slow
def test_restrictions_hold(board: Leaderboard) -> None:
    own = dataclasses.replace(board, request={**board.request, "overrides": {"recompute": ["full"]}})
    searched = re.findall(r"</strong> ([^<]*) \(searched", scaling_of(own))

    assert searched and all("recompute=full" in strategy for strategy in searched)


@pytest.mark.slow
def test_a_bound_on_the_risk_of_running_out_of_memory_holds() -> None:
    fields = {"cluster": "dgx-h100", "global_batch": 96, "seq_len": 4096}
    whole, bounded = (search("llama3-8b", gpus="8..16", top=1, **fields, oom_risk=risk) for risk in (None, 0.001))
    alone = search("llama3-8b", gpus=8, top=1, **fields, oom_risk=0.001).rows[0]

    assert f"<strong>8 GPUs</strong> {alone.name} (searched for this page)" in scaling_of(bounded)
    assert alone.name not in scaling_of(whole)


def test_what_does_not_fit_or_is_gone_is_told(board: Leaderboard) -> None:
    heavy = {**board.request, "overrides": {"tp": ["1"], "zero": ["0"], "recompute": ["none"], "pp": ["1"]}}
    gone = {**board.request, "cluster": "gone.yaml"}

    assert "Nothing fits on 8 GPUs." in scaling_of(dataclasses.replace(board, request=heavy))
    told = scaling_of(dataclasses.replace(board, request=gone))
    assert "gone.yaml" in told and told.count("<li>") == 1


def test_one_number_has_no_section(board: Leaderboard) -> None:
    one = dataclasses.replace(board, request={**board.request, "gpu_counts": [32]})

    assert scaling_section(one, resolved_request(one)) is None


@settings(max_examples=tries(50))
@given(st.sets(st.integers(1, 10_000), min_size=1, max_size=60), st.integers(2, 12))
def test_spread_keeps_the_ends(counts: set[int], most: int) -> None:
    found = spread(sorted(counts), most)

    assert found == sorted(set(found)) and set(found) <= counts
    assert len(found) <= most
    assert {min(counts), max(counts)} <= set(found)
