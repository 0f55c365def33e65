"""Leaderboards in notebooks: a small table, and pandas where it is installed."""

import dataclasses
import html
import sys

import pytest

from forerun.search import Leaderboard, search
from forerun.search.answer.explain.explain import Explanation
from forerun.search.api import explain
from forerun.search.board.notebook import LEAST_SHARE, SHOWN, bar_html
from forerun.spaces.errors import RequestError


@pytest.fixture(scope="module")
def board() -> Leaderboard:
    return search("llama3-8b", cluster="dgx-h100", gpus=16, global_batch=64, seq_len=4096, top=25)


def test_a_small_table(board: Leaderboard) -> None:
    text = board._repr_html_()

    assert text.count("<tr>") == 1 + SHOWN
    assert f">{board.rows[SHOWN - 1].name}<" in text and f">{board.rows[SHOWN].name}<" not in text
    assert "5 more rows" in text
    assert "llama3-8b on 16 GPUs of dgx-h100" in text


def test_names_are_escaped(board: Leaderboard) -> None:
    name = "<script>alert(1)</script>"
    rows = (dataclasses.replace(board.rows[0], marks=(name,)),)
    hostile = dataclasses.replace(board, rows=rows, why=name, request={**board.request, "model_name": name})

    assert "<script" not in hostile._repr_html_()
    assert hostile._repr_html_().count("&lt;script&gt;") == 3


@pytest.mark.slow
def test_pandas_has_the_columns_of_csv(board: Leaderboard) -> None:
    pytest.importorskip("pandas")
    frame = board.to_pandas()

    assert ",".join(frame.columns) == board.to_csv().splitlines()[0]
    assert list(frame["strategy"]) == [row.name for row in board.rows]
    assert list(frame["step_time_s"]) == [row.step_time_s for row in board.rows]


def test_without_pandas(board: Leaderboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(RequestError, match="pip install pandas"):
        board.to_pandas()


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return explain("llama3-8b", cluster="dgx-h100", global_batch=64, seq_len=4096, strategy="tp2 pp2 dp4 mbs1 zero1 sp")


def test_a_strategy_shows_its_figures_and_parts(board: Leaderboard) -> None:
    row = board.rows[0]
    text = row._repr_html_()

    assert row.name in text and f"MFU {row.mfu:.1%}" in text
    for part, seconds in row.breakdown_s.items():
        assert (f"{part} {seconds / row.step_time_s:.0%}" in text) == (seconds >= LEAST_SHARE * row.step_time_s)
    hostile = dataclasses.replace(row, tree="<script>", marks=("<b>",), fits=False)
    assert "<script>" not in hostile._repr_html_() and "<b>" not in hostile._repr_html_()


def test_bars_are_in_proportion() -> None:
    text = bar_html("step", {"compute": 3.0, "bubble": 1.0, "host": 0.0}, 4.0)

    assert "width:75.00%" in text and "width:25.00%" in text and "host" not in text


@pytest.mark.slow
def test_an_explanation_has_its_changes(explanation: Explanation) -> None:
    text = explanation._repr_html_()

    assert "what helps most" in text and html.escape(explanation.helping()[0].words) in text
    pytest.importorskip("pandas")
    frame = explanation.to_pandas()
    assert list(frame["change"]) == [change.words for change in explanation.changes]
    assert list(frame["added_s"]) == sorted(frame["added_s"])


def test_a_timeline_is_a_picture_and_a_table() -> None:
    from forerun.search.request.request import Request
    from forerun.search.request.resolve import resolve
    from forerun.search.request.setting import legal_strategy
    from forerun.simulator.events import simulate as simulate_events

    setting = resolve(Request(model="llama3-8b", cluster="dgx-h100", global_batch=16, seq_len=4096))
    result = simulate_events(setting.context, legal_strategy(setting, "tp2 pp2 dp2 mbs1 zero1 sp"))

    assert result._repr_html_().startswith("<div") and "<svg" in result._repr_html_()
    assert "<script" not in result._repr_html_() and "http" not in result._repr_html_().replace("http://www.w3.org", "")
    pytest.importorskip("pandas")
    frame = result.to_pandas()
    assert len(frame) == sum(1 for _ in result.timeline())
    assert frame["end_s"].max() == pytest.approx(result.step_time_s)
