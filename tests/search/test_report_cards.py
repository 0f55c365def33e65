"""The first screen of the page: the fastest strategy, and a safer one where there is any."""

import dataclasses
from collections.abc import Sequence

import pytest

from forerun.search import Leaderboard, search
from forerun.search.report import report_html
from forerun.search.report.cards import cards, safer


@pytest.fixture(scope="module")
def board() -> Leaderboard:
    return search("llama3-8b", cluster="dgx-h100", gpus="8", global_batch=64, seq_len=4096, top=6)


def with_risks(board: Leaderboard, risks: Sequence[float]) -> Leaderboard:
    rows = [dataclasses.replace(row, oom_risk=risk) for row, risk in zip(board.rows, risks, strict=False)]
    return dataclasses.replace(board, rows=tuple(rows))


@pytest.mark.parametrize(
    ("risks", "rank"),
    [
        ([0.3, 0.4, 0.05, 0.0], 3),  # the best of those with a small risk
        ([0.05, 0.05, 0.05, 0.0], 4),  # the first has a small one: the least
        ([0.002, 0.0, 0.0, 0.0], 1),  # a difference that is not shown is none
        ([0.3, 0.2, 0.4, 0.5], 2),  # all are risky: the least
    ],
)
def test_the_safer_card_is_the_best_row_of_small_risk(board: Leaderboard, risks: list[float], rank: int) -> None:
    assert safer(with_risks(board, risks).rows).rank == rank


def test_each_card_has_its_own_launch_and_copies_the_whole_search(board: Leaderboard) -> None:
    text = cards(
        with_risks(board, [0.3, 0.0, 0.0, 0.0]), ["# megatron-lm: launch.sh\na", "# megatron-lm: launch.sh\nb"]
    )
    assert text.count('class="card"') == 2
    assert "--rank 1 --format megatron-lm" in text and "--rank 2 --format megatron-lm" in text
    assert "bash launch/launch.sh" in text
    assert text.count("--global-batch 64") == 2  # in what the buttons copy


def test_one_card_where_no_row_is_safer(board: Leaderboard) -> None:
    assert cards(with_risks(board, [0.0] * 6), []).count('class="card"') == 1


def test_the_page_begins_with_the_cards(board: Leaderboard) -> None:
    page = report_html(with_risks(board, [0.3, 0.0, 0.0, 0.0]))
    assert page.index('class="cards"') < page.index('<h2 id="leaderboard-title"')
    assert 'class="scroll tall"' not in page
