"""A report from the folder of a search, from the search itself, and from what is no such folder."""

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from forerun.search import Leaderboard, Request, search
from forerun.search.board.folder import write_folder
from forerun.search.cli import main
from forerun.search.report import read_run, report_html
from forerun.search.report.labels import FLAGS, command
from forerun.simulator.memory.risk import oom_risk
from forerun.spaces.errors import RequestError

SEARCH = "search llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 4096 --gpus 16"


def in_shell(text: str) -> list[str]:
    """Return the words a shell makes of a command; unlike a shell, shlex keeps continued lines apart."""
    return shlex.split(text.replace("\\\n", ""))


@pytest.fixture(scope="module")
def board() -> Leaderboard:
    return search("llama3-8b", cluster="dgx-h100", gpus=16, global_batch=64, seq_len=4096, top=12)


@pytest.fixture
def run(board: Leaderboard, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    write_folder(folder, board)
    return folder


def test_a_folder_gives_the_page_of_its_search(board: Leaderboard, run: Path) -> None:
    assert read_run(run) == dataclasses.replace(board, request=read_run(run).request, remarks=board.notes, advice=())
    assert report_html(read_run(run)) == report_html(board)


def test_the_verb_writes_the_page(board: Leaderboard, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = run.parent / "page.html"

    assert main(["report", str(run)]) == 0
    assert main(["report", str(run), "--out", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == (run / "report.html").read_text(encoding="utf-8") == report_html(board)
    assert capsys.readouterr().out == ""


def test_a_search_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"

    assert main([*SEARCH.split(), "--json", "--report", str(page), "--out", str(tmp_path / "run")]) == 0
    json.loads(capsys.readouterr().out)
    assert page.read_text(encoding="utf-8") == report_html(read_run(tmp_path / "run"))


def test_the_command_on_the_page_asks_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    restricted = [*SEARCH.split(), "--set", "tp=2,4", "--set", "recompute=full", "--tokens", "1.5T", "--top", "5"]
    assert main([*restricted, "--json", "--out", str(tmp_path / "run")]) == 0
    first = json.loads(capsys.readouterr().out)

    words = in_shell(command(read_run(tmp_path / "run")))

    assert words[0] == "forerun"
    assert main([*words[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["leaderboard"] == first["leaderboard"]


def test_every_field_of_a_request_has_its_flag() -> None:
    known = {field for field, _ in FLAGS} | {
        "all_variants",
        "allow_generic",
        "inference",
        "model",
        "overrides",
        "user_defaults",
        "ignored_config_fields",
        "shapes",
        "switches",
    }

    assert {field.name for field in dataclasses.fields(Request)} == known, "add it to FLAGS and to Request.from_json"


def test_a_command_quotes_every_name(board: Leaderboard) -> None:
    name = "a b'; rm -rf $HOME #\n.json"
    request = {**board.request, "model": name, "cluster": name, "ignored_config_fields": (name,)}
    words = in_shell(command(dataclasses.replace(board, request=request)))

    assert words[2] == name
    assert words[words.index("--cluster") + 1] == name
    assert words[words.index("--ignore-config-field") + 1] == name


@pytest.mark.parametrize("target", ["", "missing/page.html"])
def test_a_bad_target_is_refused_before_the_search(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SEARCH.split(), "--report", str(tmp_path / target), "--out", str(tmp_path / "run")]) == 2
    assert "is a folder; name a file" in (err := capsys.readouterr().err) or "is not a folder" in err
    assert not (tmp_path / "run").exists()


def _damage(data: dict[str, Any], change: str) -> Any:
    row = data["leaderboard"][0]
    changes: dict[str, Any] = {
        "list": lambda: [],
        "schema": lambda: {**data, "schema": 2},
        "rows": lambda: {**data, "leaderboard": []},
        "row": lambda: {**data, "leaderboard": [3]},
        "number": lambda: {**data, "leaderboard": [{**row, "step_time_s": "x"}]},
        "zero": lambda: {**data, "leaderboard": [{**row, "tokens_per_s_per_gpu": 0}]},
        "part": lambda: {**data, "leaderboard": [{**row, "breakdown_s": {}}]},
        "strategy": lambda: {**data, "leaderboard": [{**row, "strategy": "<b>"}]},
        "key": lambda: {key: value for key, value in data.items() if key != "space"},
        "counts": lambda: {**data, "request": {**data["request"], "gpu_counts": []}},
        "objective": lambda: {**data, "request": {**data["request"], "objective": "beauty"}},
    }
    return changes[change]()


@pytest.mark.parametrize(
    "change", ["list", "schema", "rows", "row", "number", "zero", "part", "strategy", "key", "counts", "objective"]
)
def test_a_damaged_leaderboard_is_one_message(change: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "leaderboard.json"
    path.write_text(json.dumps(_damage(json.loads(path.read_text()), change)))

    assert main(["report", str(run)]) == 2
    assert str(path) in capsys.readouterr().err
    assert not (run / "report.html").exists()


@pytest.mark.parametrize(
    "document",
    [[], 3, {"schema": 2}, {"schema": 1, "leaderboard": []}, {"schema": 1, "searches": [], "leaderboard": []}],
)
def test_all_readers_of_a_folder_refuse_the_same(
    document: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leaderboard.json").write_text(json.dumps(document))
    told = []
    for words in ("report", "export --format forerun --out none"):
        verb, *flags = words.split()
        assert main([verb, str(tmp_path), *flags]) == 2
        told.append(capsys.readouterr())

    assert told[0] == told[1] and told[0].err.count("\n") == 1
    assert "Error" not in told[0].err and ("sweep" in told[0].err) == (
        isinstance(document, dict) and "searches" in document
    )


def test_a_truncated_or_missing_leaderboard(run: Path) -> None:
    path = run / "leaderboard.json"
    path.write_text(path.read_text()[:-200])
    with pytest.raises(RequestError, match=r"leaderboard\.json"):
        read_run(run)
    path.unlink()
    with pytest.raises(RequestError, match="forerun search --out"):
        read_run(run)
    with pytest.raises(RequestError, match="is not a folder"):
        read_run(path)


OLD = Path(__file__).parent / "boards" / "2026-11-20.json"
"""A leaderboard with the fields that the first versions wrote: no risk, no numbers of GPUs, no workers."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "leaderboard.json").write_text(OLD.read_text(encoding="utf-8"), encoding="utf-8")
    return folder


def test_fields_of_later_versions_are_filled_in(old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = read_run(old)
    assert [row.oom_risk for row in found.rows] == [
        oom_risk(row.peak_memory_gib / row.memory_limit_gib) for row in found.rows
    ]
    assert 0 < found.rows[0].oom_risk < 1
    assert found.request["gpu_counts"] == [16]

    assert main(["report", str(old)]) == 0
    assert found.rows[0].name in (old / "report.html").read_text(encoding="utf-8")
    assert main(["export", str(old), "--format", "megatron-lm", "--out", str(tmp_path / "launch")]) == 0
    assert (
        main(
            [
                *"search qwen3-0.6b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 4096".split(),
                "--per-stage",
                "layers",
                "--evaluations",
                "20",
                "--start",
                str(old),
            ]
        )
        == 0
    )
    assert "2 of 2 strategies of" in " ".join(capsys.readouterr().out.split())


def test_another_schema_is_refused_by_reports_and_exports_alike(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = old / "leaderboard.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
    for verb in (["report", str(old)], ["export", str(old), "--format", "nanotron", "--out", str(old / "out")]):
        assert main(verb) == 2
        assert "has schema 2, but this forerun reads schema 1" in capsys.readouterr().err


def test_fields_of_later_versions_are_passed_over(board: Leaderboard, run: Path) -> None:
    path = run / "leaderboard.json"
    data = json.loads(path.read_text())
    data["later"] = {"a": 1}
    data["leaderboard"][0]["later"] = 2.0
    path.write_text(json.dumps(data))

    assert report_html(read_run(run)) == report_html(board)
