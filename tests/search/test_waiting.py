"""What a terminal shows while a verb works, and that it is gone before anything is printed."""

import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from forerun.search import search_request
from forerun.search.answer.refine import refine
from forerun.search.answer.trees import with_trees
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.cli import progress
from forerun.search.cli.progress import Waiting, show_progress, working
from forerun.search.cli.registry import VERBS
from forerun.search.cli.streams import Escaped, escaped_streams
from forerun.search.cli.verbs.sweep import SweepView
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting

HIDE = "\x1b[?25l"
"""Hides the cursor: the first thing that a bar writes."""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Let standard error be a terminal on which a verb works, and nobody be patient."""
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with escaped_streams(), working("searching"):
        wait_until_shown()
        yield stream


def wait_until_shown() -> None:
    assert isinstance(sys.stderr, Escaped) and isinstance(sys.stderr.waiting, Waiting)
    sys.stderr.waiting._timer.join()


def test_a_line_tells_what_is_done_and_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_a_terminal(monkeypatch) as terminal:
        show_progress("simulating the best rows", 3, 20, "best 3.2 s")
    text = terminal.getvalue()
    assert HIDE in text and "searching" in text
    assert "simulating the best rows" in text and "best 3.2 s" in text


def test_it_is_gone_before_anything_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with on_a_terminal(monkeypatch) as terminal:
        print("an answer")
        shown = terminal.getvalue()
        show_progress("searching", 1, 2)
        assert terminal.getvalue() == shown
    assert "an answer" in capsys.readouterr().out


def test_it_comes_again_after_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_a_terminal(monkeypatch) as terminal:
        print("forerun: a message", file=sys.stderr)
        wait_until_shown()
        show_progress("searching", 1, 2, "3 scored")
    text = terminal.getvalue()
    assert text.index("forerun: a message") < text.index("3 scored")


@pytest.mark.parametrize("task", ["", "searching"])
def test_without_a_terminal_nothing_is_shown(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    with escaped_streams(), working(task):
        show_progress("searching", 1, 2)
    assert capsys.readouterr().err == ""


def test_verbs_that_may_take_long_show_something() -> None:
    own = {"sweep", "record", "job", "tune", "mcp"}
    quick = {"list", "show", "completion"}
    assert {verb.name for verb in VERBS if not verb.doing} == own | quick


@pytest.fixture(scope="module")
def setting() -> Setting:
    return resolve(Request(model="llama3-8b", cluster="dgx-h100", gpus="8", global_batch=64, seq_len=4096, top=4))


@pytest.fixture(scope="module")
def board(setting: Setting) -> Leaderboard:
    return search_request(setting)


def test_a_refinement_that_is_stopped_gives_the_rows_as_they_were(setting: Setting, board: Leaderboard) -> None:
    seen: list[tuple[int, int]] = []

    def stop(task: str, done: int, of: int, note: str) -> None:
        seen.append((done, of))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(EndedEarly) as stopped:
        refine(board, setting, 3, stop)
    assert seen == [(0, 4), (1, 4), (2, 4)]
    assert stopped.value.found.rows == board.rows[:3]
    assert "interrupted after 2 of 4 simulations" in stopped.value.found.remarks[-1]


def test_a_search_for_trees_that_is_stopped_gives_the_board(setting: Setting, board: Leaderboard) -> None:
    def stop(task: str, done: int, of: int, note: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(EndedEarly) as stopped:
        with_trees(board, setting, 1, on_progress=stop)
    assert stopped.value.found.rows == board.rows
    assert stopped.value.found.trees is not None and stopped.value.found.trees.rows == ()


def test_a_sweep_says_what_is_left_at_its_pace() -> None:
    view = SweepView(io.StringIO())
    view._count, view._done, view._earlier, view._under_way = 4, 2, 1, {2: 0.5}
    view._start_s = time.monotonic() - 10.2

    assert view._title() == "2 of 4 (search 3 50%), 0:00:10 elapsed, 0:00:10 left"
