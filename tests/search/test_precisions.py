"""Several precisions in one leaderboard: each row names its own, and is launched and read back in it."""

import dataclasses
import functools
import json

import pytest

from forerun.search.answer.precisions import search_precisions, settings_by_precision
from forerun.search.answer.searches import search_request
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.row_reading import row_from_json
from forerun.search.cli import main
from forerun.search.formats.exporting import launch_in
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.spaces.errors import RequestError

SMALL = Request(model="gpt2", cluster="dgx-h100", global_batch=64, seq_len=1024, gpus="8", top=6)
FEW = {"cp": [1], "vpp": [1], "mbs": [1, 2]}
LARGE = dataclasses.replace(SMALL, model="llama3-8b", seq_len=4096, overrides=FEW)


REQUESTS = {"small": SMALL, "large": LARGE}


@functools.cache
def board_of(name: str, *precisions: str) -> Leaderboard:
    return search_precisions(settings_by_precision(REQUESTS[name], precisions), search_request)


@functools.cache
def alone(name: str, precision: str) -> Leaderboard:
    return search_request(dataclasses.replace(REQUESTS[name], precision=precision))


def test_the_first_row_is_the_best_of_the_better_precision() -> None:
    board, best = board_of("large", "bf16", "fp8"), alone("large", "fp8").rows[0]
    assert (board.rows[0].precision, board.rows[0].name, board.rows[0].step_time_s) == (
        "fp8", best.name, best.step_time_s
    )  # fmt: skip


@pytest.mark.slow
def test_rows_of_a_precision_are_those_of_its_own_search_in_order() -> None:
    board = board_of("small", "bf16", "fp8")
    assert {row.precision for row in board.rows} == {"bf16", "fp8"}
    for precision in ("bf16", "fp8"):
        shown = [row.name for row in board.rows if row.precision == precision]
        assert shown == [row.name for row in alone("small", precision).rows][: len(shown)]


def test_within_a_per_cent_the_precision_named_first_goes_first() -> None:
    assert board_of("small", "bf16", "fp8").rows[0].precision == "bf16"
    assert board_of("small", "fp8", "bf16").rows[0].precision == "fp8"


def test_no_row_is_faster_and_safer_than_the_first() -> None:
    board = board_of("large", "bf16", "fp8")
    first = board.rows[0]
    assert not any(
        row.step_time_s < first.step_time_s and row.oom_risk < first.oom_risk - 0.005 for row in board.rows[1:]
    )


def test_a_row_is_exported_and_read_back_in_its_precision(tmp_path) -> None:
    document = board_of("small", "bf16", "fp8").to_json()
    for rank, row in enumerate(document["leaderboard"], start=1):
        launch, context = launch_in(document, rank, name="x", source=tmp_path / "leaderboard.json")
        assert launch.workload.precision == row["precision"]
        assert context is not None and context.workload.precision == row["precision"]
        assert row_from_json(row).precision == row["precision"]


@pytest.mark.slow
def test_the_gap_between_precisions_is_said(capsys) -> None:
    flags = "--cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 4096 --precision bf16,fp8 --set mbs=1".split()
    assert main(["search", "llama3-8b", *flags]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "less GPU time a step than the best row in bf16" in out
    assert "bf16 and fp8" in out


def test_a_precision_in_which_nothing_fits_leaves_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--cluster dgx-a100-40 --gpus 1 --global-batch 16 --seq-len 2816 --set mbs=1 --set recompute=none --json"
    words = ["search", "qwen3-1.7b", *flags.split(), "--precision"]

    assert main([*words, "fp32,bf16"]) == 0
    rows = json.loads(capsys.readouterr().out)["leaderboard"]
    assert rows and {row["precision"] for row in rows} == {"bf16"}
    assert main([*words, "fp32,tf32"]) == 3
    assert json.loads(capsys.readouterr().out)["leaderboard"] == []


def test_an_interrupt_keeps_the_rows_of_the_precision_that_was_searched() -> None:
    def search(setting: Setting) -> Leaderboard:
        if setting.context.workload.precision == "fp8":
            raise EndedEarly(None, KeyboardInterrupt())
        return search_request(setting)

    with pytest.raises(EndedEarly) as stop:
        search_precisions(settings_by_precision(SMALL, ["bf16", "fp8"]), search)
    assert [row.precision for row in stop.value.found.rows] == ["bf16"] * SMALL.top


def test_operator_graphs_have_one_precision() -> None:
    with pytest.raises(RequestError, match="transformers"):
        settings_by_precision(Request(model="resnet50", cluster="dgx-h100", global_batch=64), ["bf16", "fp16"])


@pytest.mark.parametrize(
    ("cluster", "precision"), [("dgx-h100", "bf16"), ("dgx1-v100", "fp16"), ("aws-g4dn", "fp16"), ("p40-box", "fp32")]
)
def test_a_search_without_a_precision_takes_one_that_the_device_has(cluster: str, precision: str) -> None:
    resolved = resolve(dataclasses.replace(SMALL, cluster=cluster))

    assert resolved.context.workload.precision == precision
    assert f"precision {precision}" in resolved.defaults
