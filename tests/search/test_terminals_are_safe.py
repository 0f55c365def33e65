"""What strangers wrote reaches no terminal, page or spreadsheet as a command."""

import io
import json
import sys
from pathlib import Path

import pytest
from forerun_cli import cli

from forerun.search.cli.console import open_console
from forerun.search.cli.streams import escaped_streams, raw_stream
from forerun.search.figures.markup import tag
from forerun.search.files.documents import dump_json
from forerun.spaces.escaping import harmful, quoted, shown, visible, without_secrets

NASTY = "\x1b]0;x\x07\x9b31m\u202ename\ud800"


def test_every_stream_is_escaped_and_colours_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with escaped_streams():
        print(NASTY)
        raw_stream(sys.stdout).write("\x1b[1m")
        open_console().print(f"title {NASTY}")
    text = stream.getvalue()
    assert text.count("\x1b") == 1 and text.count("\\x1b]0;x") == 2
    assert harmful(text.replace("\x1b", "")) is None
    assert sys.stdout is stream


def test_json_and_pages_say_the_same_without_harm() -> None:
    text = dump_json({NASTY: NASTY})
    assert harmful(text) is None
    assert json.loads(text) == {NASTY: NASTY}
    assert harmful(tag("td", NASTY, title=NASTY)) is None


def test_names_of_files_and_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[2Jb.yaml"
    path.write_text('"\\e]0;x\\a": 1\n')
    request = "search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 8 --seq-len 512 --space".split()
    for words in ([*request, str(path)], ["scale", str(path)], ["import", str(path)], ["validate", str(path)]):
        from forerun.search.cli import main

        assert main(words) == 2
        out, err = capsys.readouterr()
        assert harmful(out + err) is None and "a\\x1b[2Jb.yaml" in err


def test_long_keys_are_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"{'k' * 100_000}: 1\n")
    code, _, err = cli(capsys, f"scale {path}")
    assert code == 2 and len(err) < 5000


@pytest.mark.parametrize(
    "url",
    [
        "nosuch://me:SECRET@host/db?password=SECRET",
        "nosuch://SECRET@host/db",
        "nosuch://u@host/db?sslpassword=SECRET&x=SECRET@1",
        "nosuch://me:a/SECRET@host/db",
        "nosuch://me:a?SECRET@host/db",
        "nosuch://me:a@SECRET@host/db",
        "postgresql://u@host/db?sslpassword=SECRET",
        "mysql://SECRET@localhost/db",
        "me:SECRET@host/db",
    ],
)
def test_nothing_of_a_url_but_its_host_is_printed(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    search = "search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 8 --seq-len 512 --per-stage layers"
    code, out, err = cli(capsys, f"{search} --storage {url}")
    assert code == 2 and "SECRET" not in out + err


@pytest.mark.parametrize(
    "text,shown_as",
    [
        ("see http://host:80/ and a@b", "see http://host:80 and a@b"),
        ("ray://10.0.0.1:10001", "ray://10.0.0.1:10001"),
        ("mysql://me:SECRET@host/db", "mysql://host/…"),
        ("http://host/?q=a@b", "http://…"),
    ],
)
def test_urls_are_their_scheme_and_host(text: str, shown_as: str) -> None:
    assert without_secrets(text) == shown_as


def test_values_are_shown_on_one_line() -> None:
    assert shown("a\nb\x00" + "c" * 200, most=10) == "a\\nb\\x00ccccc…"
    assert quoted("x" * 10**6).startswith("'xxx") and len(quoted("x" * 10**6)) <= 80
    assert visible("ok é 日本 ✓") == "ok é 日本 ✓"
