"""The page of a sweep and launch files out of its folder: true to the records, self-contained, safe with any name."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from forerun_cli import cli
from sweep_cases import SERIAL

from forerun.search.board.sweeps import SweepFolder, read_search, read_sweep
from forerun.search.figures.still_page import page_style
from forerun.search.report import read_run, report_html
from forerun.search.report.scripted import asset
from forerun.search.report.sweep import data as data_module
from forerun.search.report.sweep import sweep_html
from forerun.search.report.sweep.data import sweep_data
from forerun.search.sweep import run_sweep
from forerun.search.sweep.plan import plan_of
from forerun.spaces.errors import RequestError

REFUSED = 4
"""Number of the first search on A100s, which have no 8-bit units."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep") / "run"
    plan = plan_of(
        models=["llama3-8b"],
        clusters=["dgx-h100", "dgx-a100-80"],
        workloads=[{"global_batch": 32, "seq_len": 2048, "precision": "fp8", "tokens": 1e11}],
        budgets=[{"gpus": str(gpus), "usd_per_gpu_hour": 2.0} for gpus in (8, 16, 32)],
        overrides={"mbs": [1], "vpp": [1], "cp": [1], "recompute": ["none", "full"]},
        top=3,
    )
    run_sweep(plan, folder, workers=SERIAL)
    return folder


@pytest.fixture(scope="module")
def sweep(folder: Path) -> SweepFolder:
    return read_sweep(folder)


def embedded(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


def test_every_row_is_on_the_page_in_the_order_of_the_sweep(folder: Path, sweep: SweepFolder) -> None:
    columns = embedded(sweep_html(sweep))["columns"]
    written = json.loads((folder / "leaderboard.json").read_text())["leaderboard"]
    firsts = [row["search"] for row in written if row["rank"] == 1]

    assert len(written) == 9
    assert sorted(zip(columns["search"], columns["rank"], columns["strategy"], strict=True)) == sorted(
        (row["search"], row["rank"], row["strategy"]) for row in written
    )
    assert [search for search, rank in zip(columns["search"], columns["rank"], strict=True) if rank == 1] == firsts
    best = next(row for row in written if row["rank"] == 1)
    place = columns["search"].index(best["search"])
    for key, field in (
        ("days", "train_days"),
        ("usd", "train_cost_usd"),
        ("mwh", "train_mwh"),
        ("rate", "tokens_per_s"),
    ):
        assert columns[key][place] == pytest.approx(best[field], rel=1e-3)


def test_parts_of_every_row_add_up(sweep: SweepFolder) -> None:
    data = sweep_data(sweep)

    for step, parts in zip(data.columns["step"], data.parts["step"]["rows"], strict=True):
        assert sum(parts) == pytest.approx(step, rel=0.01)
    for memory, parts in zip(data.columns["memory"], data.parts["memory"]["rows"], strict=True):
        assert sum(parts) == pytest.approx(memory, rel=0.01)


def test_what_found_nothing_says_why(sweep: SweepFolder) -> None:
    data, page = sweep_data(sweep), sweep_html(sweep)

    assert data.ended == {"done": 3, "refused": 3}
    assert [number for number, _, _ in data.nothing] == [REFUSED, REFUSED + 1, REFUSED + 2]
    assert "has no fp8" in page


def test_nothing_is_loaded_and_no_name_is_markup(sweep: SweepFolder) -> None:
    hostile = "</script><img src=x onerror=alert(1)>\"' & ${title}"
    pieces = tuple({**piece, "request": {**piece["request"], "model": hostile}} for piece in sweep.pieces)
    page = sweep_html(SweepFolder(folder=sweep.folder, objective=sweep.objective, pieces=pieces))

    assert "<img" not in page
    assert embedded(page)["asked"]["model"]["values"] == [hostile]
    assert re.findall(r"https?://[^\"' ]*", page) == ["http://www.w3.org/2000/svg"]
    script = page_style() + asset("sweep.js")
    assert not re.search(r"url\(|@import|fetch\(|XMLHttp|import\(|WebSocket|sendBeacon|innerHTML|eval\(", script)


def test_of_too_many_rows_the_best_of_every_search_stay(sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_module, "MOST_ROWS", 7)
    data = sweep_data(sweep)

    assert data.rows == 9
    assert sorted(data.columns["rank"]) == [1, 1, 1, 2, 2, 2]


def test_a_sweep_that_is_running_has_a_page(folder: Path, tmp_path: Path) -> None:
    for name in ("sweep.json", "pieces.jsonl"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    first, *_ = (tmp_path / "pieces.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "pieces.jsonl").write_bytes(first + b'{"key":"torn')

    assert sweep_data(read_sweep(tmp_path)).unfinished == 5
    (tmp_path / "pieces.jsonl").write_bytes(b"")
    with pytest.raises(RequestError, match=r"no search of .* has found anything"):
        sweep_html(read_sweep(tmp_path))


def test_one_search_of_a_sweep_has_the_whole_page(folder: Path) -> None:
    board = read_run(folder, 2)

    assert [row.name for row in board.rows] == [row["strategy"] for row in read_search(folder, 2)["leaderboard"]]
    assert board.request["gpu_counts"] == [16]
    assert "Launch files" in report_html(board)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("report FOLDER --search 9", "has searches 1 to 6, but got --search 9"),
        (f"report FOLDER --search {REFUSED}", "has no rows; refused: "),
        ("export FOLDER --format megatron-lm --out OUT", "is a sweep of 6 searches; name one of them with --search"),
        ("export FOLDER --search some --format megatron-lm --out OUT", "--search"),
        ("export FOLDER --search all --format megatron-lm --rank 9 --out OUT", "has ranks 1 to 3, but got --rank 9"),
    ],
)
def test_what_cannot_be_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    code, _, told = cli(
        capsys, *(w.replace("FOLDER", str(folder)).replace("OUT", str(tmp_path)) for w in words.split())
    )

    assert code == 2
    assert message in told


def test_export_of_one_search_and_of_all(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [read_search(folder, number)["leaderboard"][0]["strategy"] for number in (1, 2, 3)]
    words = ["--format", "megatron-lm", "--json", "--out"]
    code, one, _ = cli(capsys, "export", str(folder), "--search", "2", *words, str(tmp_path / "one"))
    assert code == 0
    assert json.loads(one)["launch"]["strategy"] == rows[1]

    code, every, _ = cli(capsys, "export", str(folder), "--search", "all", *words, str(tmp_path / "all"))
    assert code == 0
    assert [search["launch"]["strategy"] for search in json.loads(every)["searches"]] == rows
    for number in (1, 2, 3):
        text = (tmp_path / "all" / f"search-{number}" / "launch.sh").read_text()
        assert "pretrain_gpt.py" in text
    assert (tmp_path / "one" / "launch.sh").read_text() == (tmp_path / "all" / "search-2" / "launch.sh").read_text()


def test_the_command_writes_the_page_into_the_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, told = cli(capsys, "report", str(folder), "--force")

    assert code == 0
    assert f"wrote {folder / 'report.html'}" in told
    assert (folder / "report.html").read_text(encoding="utf-8") == sweep_html(read_sweep(folder))
