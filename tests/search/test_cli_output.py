"""What the command line prints: one document for machines, plain text without a terminal, files on request."""

import csv
import io
import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from rich.text import Text

from forerun.search import search, simulate
from forerun.search.catalogue.lists import LISTS
from forerun.search.cli import main
from forerun.search.cli.bars import GLYPHS, Brush, share_cells
from forerun.search.cli.board import print_board
from forerun.search.cli.brief import decision, is_gain, weighty_notes, with_ranks
from forerun.search.cli.tables import StrategyText
from forerun.simulator import MEMORY_PARTS, TIME_PARTS
from forerun.spaces.errors import RequestError

pytestmark = pytest.mark.usefixtures("each_search_once")
TRAINING = "--cluster dgx-h100 --global-batch 64 --seq-len 4096"
FEW = "--set pp=1,2 --set vpp=1 --set mbs=1,2"
SEARCH = f"search llama3-8b {TRAINING} --gpus 16 {FEW}"
STRATEGY = ["--strategy", "tp2 pp2 dp4 mbs1 zero1 sp"]
EXAMPLES = {
    "search": SEARCH.split(),
    "simulate": [*f"simulate llama3-8b {TRAINING}".split(), *STRATEGY],
    "explain": [*f"explain llama3-8b {TRAINING}".split(), *STRATEGY],
    "compare": [*f"compare llama3-8b {TRAINING}".split(), *STRATEGY, "--strategy", "dp16"],
    "list": ["list", "models"],
    "show": ["show", "llama3-8b"],
}


def run(arguments: list[str], capsys: pytest.CaptureFixture[str], *, code: int = 0) -> tuple[str, str]:
    assert main(arguments) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


@pytest.mark.parametrize("verb", EXAMPLES)
@pytest.mark.parametrize("columns", [80, 132])
@pytest.mark.slow
def test_plain_text_fits_without_a_terminal(
    verb: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out, err = run(EXAMPLES[verb], capsys)

    assert "\x1b" not in out
    assert err == ""
    if verb != "show":  # YAML, which has no width
        assert max(map(len, out.splitlines())) <= columns


def test_a_terminal_is_shown_so_many_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("forerun.search.cli.board.MOST_ROWS", 2)
    out, _ = run([*EXAMPLES["search"], "--top", "5", "--all-variants"], capsys)

    assert "and 3 more rows: --json and --out have all of them" in out
    assert not [line for line in out.splitlines() if line.strip().startswith("3 ")]


def test_the_name_of_an_option_is_never_broken() -> None:
    name = "tp2 pp2 dp4 mbs1 zero1 sp recompute=layernorm+moe_act with=tp-comm-overlap+moe-overlap (+12)\n! ep crosses"
    console = Console(width=25, file=io.StringIO())

    console.print(StrategyText(Text(name)))

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # a StringIO
    assert max(map(len, lines)) <= 25
    assert "".join(name.split()) == "".join("".join(lines).split())
    assert "recompute=layernorm+" in lines and "moe_act" in lines[lines.index("recompute=layernorm+") + 1]
    assert lines[-1] == "! ep crosses"


@pytest.mark.parametrize("verb", EXAMPLES)
def test_json_is_one_document(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run([*EXAMPLES[verb], "--json"], capsys)

    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    document = json.loads(out, parse_constant=no_constant)
    assert isinstance(document, dict)
    assert err == ""


def test_board_shows_what_an_engineer_asks(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run([*SEARCH.split(), "--verbose"], capsys)
    document = json.loads(run([*SEARCH.split(), "--json"], capsys)[0])
    first, text = document["leaderboard"][0], " ".join(out.split())

    assert f"{first['tokens_per_s_per_gpu']:,.0f}" in text
    assert f"{first['mfu']:.1%}" in text
    assert f"{first['peak_memory_gib']:.1f}" in text
    assert "Peak memory " in text and "The runner-up" in text
    assert "defaults used: precision bf16; framework megatron-lm" in text
    for reason, count in document["space"]["rejected"].items():
        assert f"{reason} {count:,}" in text


def test_what_all_rows_lack_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    board = search("llama3-8b", cluster="dgx-h100", gpus=8, global_batch=16, seq_len=4096)
    lacking = tuple(replace(row, marks=("no launch file for ours",)) for row in board.rows)
    for rows in (lacking, lacking[:1], (board.rows[0], *lacking[1:3])):
        print_board(replace(board, rows=rows))
        text = " ".join(capsys.readouterr().out.split())
        assert text.count("no launch file for ours") == 1
        assert ("! all rows: no launch file for ours" in text) == (len(rows) > 3)


def test_gpus_have_a_column_where_several_numbers_were_searched(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(f"search llama3-8b {TRAINING} --gpus 8..16 --objective gpus {FEW}".split(), capsys)

    assert re.search(r"strategy +GPUs", out)


@pytest.mark.slow
def test_infeasible_prints_the_document_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = f"search llama3-70b {TRAINING} --gpus 8".split()
    out, err = run(arguments, capsys, code=3)
    assert out == ""
    assert "nothing is feasible" in err and "more GPUs" in err

    out, err = run([*arguments, "--json"], capsys, code=3)
    assert json.loads(out)["leaderboard"] == []
    assert "nothing is feasible" in err


def test_a_strategy_that_does_not_fit_is_still_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*f"simulate llama3-70b {TRAINING}".split(), "--strategy", "dp8"]

    assert json.loads(run([*arguments, "--json"], capsys)[0])["fits"] is False
    assert "GiB too much" in run(arguments, capsys)[0]


def test_compare_differs_by_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run([*EXAMPLES["compare"], "--json"], capsys)[0])
    first, second = document["rows"]

    assert sum(document["difference_s"].values()) == pytest.approx(second["step_time_s"] - first["step_time_s"])
    assert sum(document["difference_gib"].values()) == pytest.approx(
        second["peak_memory_gib"] - first["peak_memory_gib"]
    )


def test_out_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "runs" / "first"
    out, _ = run([*SEARCH.split(), "--out", str(folder), "--json"], capsys)

    assert {path.name for path in folder.iterdir()} == {
        "leaderboard.json",
        "leaderboard.csv",
        "request.yaml",
        "versions.json",
    }
    assert (folder / "leaderboard.json").read_text() == out
    document = json.loads(out)
    lines = list(csv.DictReader((folder / "leaderboard.csv").read_text().splitlines()))
    assert [line["strategy"] for line in lines] == [row["strategy"] for row in document["leaderboard"]]
    assert yaml.safe_load((folder / "request.yaml").read_text()) == document["request"]
    versions = json.loads((folder / "versions.json").read_text())
    assert versions == {"schema": 1, **document["versions"]}
    readable = stat.S_IMODE((folder / "leaderboard.json").stat().st_mode)
    assert readable == 0o666 & ~_umask()

    run([*SEARCH.split(), "--out", str(folder), "--top", "2"], capsys, code=2)
    assert (folder / "leaderboard.json").read_text() == out
    run([*SEARCH.split(), "--out", str(folder), "--top", "2", "--force"], capsys)
    assert len(json.loads((folder / "leaderboard.json").read_text())["leaderboard"]) == 2


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_space_file_and_set_restrict_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("axes:\n  tp: [1, 2, 8]\n  recompute: full\n  sp: [true, false]\n")
    by_file = json.loads(run([*SEARCH.split(), "--json", "--space", str(path), "--set", "tp=2"], capsys)[0])
    by_flag = json.loads(
        run([*SEARCH.split(), "--json", "--set", "tp=2", "--set", "recompute=full", "--set", "sp=0,1"], capsys)[0]
    )

    assert by_file["leaderboard"] == by_flag["leaderboard"]
    assert all("tp2 " in row["strategy"] and "recompute=full" in row["strategy"] for row in by_file["leaderboard"])


@pytest.mark.parametrize(
    "environment,coloured",
    [
        ({}, False),
        ({"FORCE_COLOR": "1", "TERM": "xterm-256color"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm"}, False),
    ],
)
@pytest.mark.slow
def test_colour(environment: dict[str, str], coloured: bool) -> None:
    clean = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "NO_COLOR", "TERM")}
    done = subprocess.run(
        [sys.executable, "-m", "forerun.search", *EXAMPLES["simulate"]],
        capture_output=True,
        check=True,
        env=clean | environment,
    )

    assert (b"\x1b[32m" in done.stdout) == coloured


@pytest.mark.slow
def test_a_narrow_encoding_is_no_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "forerun.search", *EXAMPLES["simulate"]],
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )

    assert b"compute" in done.stdout and b"##" in done.stdout
    assert max(done.stdout) < 128


def test_every_part_has_a_glyph_of_its_own() -> None:
    for parts in (TIME_PARTS, MEMORY_PARTS):
        assert len({GLYPHS[part][0] for part in parts}) == len(parts)
        assert len({GLYPHS[part][1] for part in parts}) == len(parts)


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [0.0, 5.0], [1e-9, 3.3, 2.2, 0.1]])
@pytest.mark.parametrize("width", [1, 10, 33])
def test_cells_fill_the_bar(values: list[float], width: int) -> None:
    assert sum(share_cells(values, width)) == width
    assert sum(share_cells(values, width, full=2 * sum(values))) == round(width / 2)
    assert share_cells([0.0, 0.0], width) == [0, 0]


@pytest.mark.parametrize("width", [12, 30, 1000])
def test_a_legend_keeps_a_glyph_beside_its_name(width: int) -> None:
    lines = Brush(ascii_only=False).legend([dict.fromkeys(TIME_PARTS, 1.0)], width=width).plain.split("\n")

    assert [word for line in lines for word in line.split()[1::2]] == list(TIME_PARTS)
    assert max(len(line.rstrip()) for line in lines) <= max(width, 12)


def test_explain_draws_every_stage_and_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(EXAMPLES["explain"], capsys)
    stages = json.loads(run([*EXAMPLES["explain"], "--json"], capsys)[0])["stages"]

    assert len(stages) == 2
    for number, parts in enumerate(stages):
        assert re.search(rf"stage {number} +\[.+\] +{sum(parts.values()):.1f} GiB", out)
        assert re.search(rf"^stage {number}  [A-Za-z.]*F[A-Za-z.]*B", out, re.MULTILINE)


@pytest.mark.parametrize("width", [56, 60, 70, 80, 100, 200])
@pytest.mark.slow
def test_a_board_fits_and_grows(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    arguments = f"search llama3-8b {TRAINING} --gpus 8..16 --usd-per-gpu-hour 2 {FEW}".split()
    out, _ = run(arguments, capsys)
    lines = out.splitlines()

    assert max(map(len, lines)) <= width
    assert any(" tp1 " in line for line in lines), "strategies are what everything else is about"
    head = next(line for line in lines if " strategy " in line)
    assert (" time" in head) == (width >= 200)


def test_a_list_in_a_pipe_has_a_line_per_entry(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["list", "clusters"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]

    assert [line.split()[0] for line in lines[2:]] == [entry["cluster"] for entry in LISTS["clusters"]()]
    assert any(line.startswith("aws-p5 ") and line.endswith("AWS p5.48xlarge: 8 H100") for line in lines)


def test_a_list_on_a_narrow_terminal_has_a_line_per_entry_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for kind in ("models", "clusters", "devices"):
        assert main(["list", kind]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]

        assert len(lines) == 2 + len(LISTS[kind]())
        assert max(map(len, lines)) <= 80


def test_frameworks_are_listed_with_the_degrees_that_they_allow() -> None:
    for line in LISTS["frameworks"]():
        if line["zero"]:
            zero = f"zero{min(line['zero'])}"
            for axis in ("tp", "cp", "pp"):
                told = refused(line["framework"], f"{axis}2 dp2 {zero}")
                assert (f"{line['framework']} offers no {axis}, but got {axis}=2; use {axis}=1" in told) == (
                    axis not in line["degrees"]
                ), told


def refused(framework: str, strategy: str) -> str:
    try:
        simulate("llama3-8b", cluster="dgx-h100", global_batch=8, seq_len=2048, framework=framework, strategy=strategy)
    except RequestError as error:
        return str(error)
    return ""


JOBS = {
    "dense": "search llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 --seq-len 8192",
    "mixture": "search mixtral-8x7b --cluster dgx-h100 --gpus 32 --global-batch 256 --seq-len 4096",
    "small cards": "search qwen2.5-3b --cluster rtx4090-box --gpus 8 --global-batch 64 --seq-len 4096 --framework fsdp",
    "network": "search resnet50 --cluster abci-v100 --gpus 4..16 --global-batch 64/gpu",
}


@pytest.mark.parametrize(
    "job,columns,most",
    [
        *((job, 80, 60) for job in ("dense", "network")),
        *(pytest.param(job, 80, 60, marks=pytest.mark.slow) for job in ("mixture", "small cards")),
        *(pytest.param(job, 110, 40, marks=pytest.mark.slow) for job in JOBS),
    ],
)
def test_a_search_fits_one_screen_and_begins_with_the_decision(
    job: str, columns: int, most: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run(JOBS[job].split(), capsys)[0].splitlines()

    assert len(lines) <= most
    assert any(line.startswith("Launch row 1") for line in lines[:5])
    assert sum(line.startswith("note: ") for line in lines) <= 5


def test_what_would_be_faster_belongs_to_the_decision(capsys: pytest.CaptureFixture[str]) -> None:
    board = search("qwen3-0.6b", cluster="dgx-h100", gpus=24, global_batch=100, seq_len=1024, top=3)
    gains = [note for note in board.advice if is_gain(note)]
    assert gains

    above = decision(board, None)
    assert sum(line.startswith("Faster: ") for line in above) == len(gains)
    assert above[-1].startswith("Next: ")
    assert not any(is_gain(note) for note in weighty_notes(board)[0])


def test_a_decision_without_launch_files_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run([*SEARCH.split(), "--lora", "16", "--framework", "torchtitan"], capsys)
    text = " ".join(out.split())
    assert "No row has a launch file. The best is row 1" in text and "says what each format lacks" in text


def test_a_strategy_that_begins_like_a_row_is_no_row() -> None:
    board = search("llama3-8b", cluster="dgx-h100", gpus=16, global_batch=64, seq_len=4096, top=1)
    (row,) = (replace(one, tree="tp4 mbs1 with=tp-comm-overlap") for one in board.rows)
    longer = f"{row.name}+moe-overlap on 16 GPUs"
    assert with_ranks(longer, (row,)) == longer
    assert with_ranks(f"{row.name}, {row.name} and {row.name}: +1%", (row,)) == "row 1, row 1 and row 1: +1%"


def test_long_strategies_leave_rows_out_rather_than_grow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    board = search("llama3-8b", cluster="dgx-h100", gpus=16, global_batch=64, seq_len=4096)
    rows = [replace(row, tree=" ".join(f"layer{row.rank}{n}=tp{n}" for n in range(30))) for row in board.rows]
    print_board(replace(board, rows=tuple(rows)))
    out = capsys.readouterr().out

    assert len(out.splitlines()) <= 40
    assert "more rows: --verbose, --json and --out have all of them" in out and "note: " in out
    monkeypatch.setattr("forerun.search.cli.board.MOST_ROWS", len(rows) - 1)  # more than --verbose shows
    print_board(replace(board, rows=tuple(rows)))
    assert "more rows: --json and --out have all of them" in capsys.readouterr().out


def test_show_prints_a_model_as_yaml_without_repetition(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(["show", "llama3-8b"], capsys)
    (layers,) = yaml.safe_load(out)["layers"]
    assert "&" not in out and out.count("kv_heads") == 1 and layers["mixer"]["kv_heads"] == 8


def test_quiet_and_verbose_serve_operator_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    graph = ["search", "resnet50", "--cluster", "dgx1-v100", "--gpus", "8", "--global-batch", "512"]
    quiet, verbose = (run([*graph, flag], capsys)[0] for flag in ("--quiet", "--verbose"))
    assert "note:" not in quiet and len(quiet.splitlines()) < len(verbose.splitlines())


def test_quiet_is_the_table_and_verbose_is_all(capsys: pytest.CaptureFixture[str]) -> None:
    quiet, brief, verbose = (run([*SEARCH.split(), *flag], capsys)[0] for flag in (["--quiet"], [], ["--verbose"]))
    document = json.loads(run([*SEARCH.split(), "--json"], capsys)[0])

    assert "Launch" not in quiet and "note:" not in quiet
    assert len(quiet.splitlines()) < len(brief.splitlines()) <= len(verbose.splitlines())
    said = " ".join(verbose.split())
    for note in document["request"]["notes"]:
        assert " ".join(note.split()) in said
    assert main([*SEARCH.split(), "--quiet", "--verbose"]) == 2
