"""Leaderboards in notebooks: a small table, and pandas where it is installed."""

import dataclasses
import sys

import pytest

from forerun.search import Leaderboard, search
from forerun.search.notebook import SHOWN
from forerun.spaces.errors import RequestError


@pytest.fixture(scope="module")
def board() -> Leaderboard:
    return search("llama3-8b", cluster="dgx-h100", gpus=16, global_batch=64, seq_len=4096, top=25)


def test_a_small_table(board: Leaderboard) -> None:
    text = board._repr_html_()

    assert text.count("<tr>") == 1 + SHOWN
    assert board.rows[SHOWN - 1].strategy in text and board.rows[SHOWN].strategy not in text
    assert "5 more rows" in text
    assert "llama3-8b on 16 GPUs of dgx-h100" in text


def test_names_are_escaped(board: Leaderboard) -> None:
    name = "<script>alert(1)</script>"
    rows = (dataclasses.replace(board.rows[0], marks=(name,)),)
    hostile = dataclasses.replace(board, rows=rows, why=name, request={**board.request, "model_name": name})

    assert "<script" not in hostile._repr_html_()
    assert hostile._repr_html_().count("&lt;script&gt;") == 3


def test_pandas_has_the_columns_of_csv(board: Leaderboard) -> None:
    pytest.importorskip("pandas")
    frame = board.to_pandas()

    assert ",".join(frame.columns) == board.to_csv().splitlines()[0]
    assert list(frame["strategy"]) == [row.strategy for row in board.rows]
    assert list(frame["step_time_s"]) == [row.step_time_s for row in board.rows]


def test_without_pandas(board: Leaderboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(RequestError, match="pip install pandas"):
        board.to_pandas()
