"""Leaderboards whose best rows were simulated event by event."""

import json

import pytest

from forerun.search.answer.refine import refine
from forerun.search.answer.searches import search_request
from forerun.search.cli import main
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator.events import simulate

REQUEST = Request(model="llama2-7b", cluster="dgx-a100-80", gpus="16", global_batch=64, seq_len=4096, top=12)


@pytest.mark.slow
def test_rows_have_the_times_of_the_event_level_in_its_order() -> None:
    setting = resolve(REQUEST)
    board = search_request(REQUEST)
    refined = refine(board, setting, 5)

    assert [row.rank for row in refined.rows] == [1, 2, 3, 4, 5]
    assert {row.strategy for row in refined.rows} <= {row.strategy for row in board.rows}
    for row in refined.rows:
        assert row.step_time_s == pytest.approx(simulate(setting.context, row.strategy).step_time_s, rel=1e-9)


@pytest.mark.slow
def test_every_row_says_where_it_came_from_and_the_notes_what_changed() -> None:
    board = search_request(REQUEST)
    refined = refine(board, resolve(REQUEST), 3)

    for row in refined.rows:
        place = next(number for number, old in enumerate(board.rows, 1) if old.strategy == row.strategy)
        assert f"#{place} by closed forms" in row.marks
    assert "simulated event by event: step times differ by" in refined.remarks[-1]


@pytest.mark.slow
def test_the_command_line_refines_more_rows_than_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--cluster dgx-a100-80 --gpus 16 --global-batch 64 --seq-len 4096 --top 2 --refine 6 --json"
    assert main(["search", "llama2-7b", *flags.split()]) == 0
    document = json.loads(capsys.readouterr().out)

    assert len(document["leaderboard"]) == 2
    assert any("the best 6 were simulated" in note for note in document["request"]["notes"])
