"""The user's present run beside the best: how it is read, what it is compared by, and where it is shown."""

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from forerun.search import simulate
from forerun.search.cli import main
from forerun.search.report import read_run, report_html
from forerun.search.report.labels import command
from forerun.simulator import MEMORY_PARTS, TIME_PARTS

pytestmark = pytest.mark.usefixtures("each_search_once")
TRAINING = {"cluster": "dgx-h100", "global_batch": 64, "seq_len": 4096}
SEARCH = "search llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 4096 --gpus 16 --top 5".split()
FEW = "--set pp=1,2 --set vpp=1 --set mbs=1,2".split()
SEARCH += FEW
OWN = "tp4 pp2 dp2 mbs1 zero1 sp recompute=full"
SCRIPT = """\
torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 4 \\
  --pipeline-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer --micro-batch-size 1 \\
  --global-batch-size 64 --seq-length 4096 --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --bf16 \\
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --frobnicate 3
"""
LOG = "\n".join(
    f" iteration {step}/ 20 | elapsed time per iteration (ms): {time} | loss: 1.0"
    for step, time in enumerate([9000, 3100, 3050, 3000, 3000, 3000, 3020, 2990, 3000], start=1)
)
ARGUMENTS = """\
using world size: 16, data-parallel size: 2
  tensor_model_parallel_size ...................... 4
  pipeline_model_parallel_size .................... 2
  sequence_parallel ............................... True
  use_distributed_optimizer ....................... True
  micro_batch_size ................................ 1
  global_batch_size ............................... 64
  seq_length ...................................... 4096
  num_layers ...................................... 32
  recompute_granularity ........................... full
  recompute_method ................................ uniform
  recompute_num_layers ............................ 1
  world_size ...................................... 16
"""


def asked(capsys: pytest.CaptureFixture[str], *flags: str, code: int = 0) -> dict[str, Any]:
    assert main([*SEARCH, *flags, "--json"]) == code
    out = capsys.readouterr().out
    document: dict[str, Any] = json.loads(out)
    return document


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    return path


def test_a_strategy_as_text_is_the_row_that_simulate_gives(capsys: pytest.CaptureFixture[str]) -> None:
    board = asked(capsys, "--baseline", OWN)
    own, best = board["baseline"], board["leaderboard"][0]
    row = simulate("llama3-8b", strategy=OWN, **TRAINING)  # type: ignore[arg-type]  # values of the fields' types

    assert own["row"] == json.loads(json.dumps(row.to_json()))
    assert own["format"] is None
    assert set(own["difference_s"]) == set(TIME_PARTS) and set(own["difference_gib"]) == set(MEMORY_PARTS)
    assert sum(own["difference_s"].values()) == pytest.approx(own["row"]["step_time_s"] - best["step_time_s"])
    assert sum(own["difference_gib"].values()) == pytest.approx(own["row"]["peak_memory_gib"] - best["peak_memory_gib"])
    assert own["faster_rows"] == sum(
        other["tokens_per_s_per_gpu"] > own["row"]["tokens_per_s_per_gpu"] for other in board["leaderboard"]
    )


def test_switches_that_do_nothing_for_a_strategy_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SEARCH, "--baseline", "tp1 pp2 dp8 mbs1 zero1 with=tp-comm-overlap"]) == 2
    assert "tp-comm-overlap needs sp" in capsys.readouterr().err


def test_the_search_itself_does_not_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "--baseline", OWN)["leaderboard"] == asked(capsys)["leaderboard"]


def test_a_script_is_read_and_nothing_of_it_is_lost(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = asked(capsys, "--baseline", str(script))
    own = board["baseline"]

    assert own["row"]["strategy"] == OWN
    assert own["format"] == own["framework"] == "megatron-lm"
    assert own["unknown"] == {"--frobnicate": "3"}
    assert board["request"]["baseline"] == [str(script)]
    assert "framework megatron-lm (from the baseline)" in board["request"]["defaults"]


def test_the_size_of_a_step_comes_from_the_files(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = "search llama3-8b --cluster dgx-h100 --gpus 16 --top 5 --json".split()
    assert main([*short, *FEW, "--baseline", str(script)]) == 0
    board = json.loads(capsys.readouterr().out)

    assert board["leaderboard"] == asked(capsys)["leaderboard"]
    assert "global batch 64 (from the baseline)" in board["request"]["defaults"]
    assert "sequence length 4096 (from the baseline)" in board["request"]["defaults"]
    for flags, told in (([], "unless --baseline names files"), (["--baseline", OWN], "does not state it")):
        assert main([*short, *flags]) == 2
        assert told in capsys.readouterr().err


def test_the_best_as_baseline_is_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    best = asked(capsys)["leaderboard"][0]
    own = asked(capsys, "--baseline", best["strategy"])["baseline"]

    assert own["faster_rows"] == 0 and "best already" in own["text"]
    assert not any(own["difference_s"].values()) and not any(own["difference_gib"].values())


def test_changes_help(capsys: pytest.CaptureFixture[str]) -> None:
    own = asked(capsys, "--baseline", OWN)["baseline"]

    assert own["changes"]
    for change in own["changes"]:
        assert change["row"]["step_time_s"] < own["row"]["step_time_s"]


def test_on_other_gpus_parts_compare_as_gpu_time(capsys: pytest.CaptureFixture[str]) -> None:
    board = asked(capsys, "--baseline", "tp4 pp1 dp2 mbs1 zero1 sp recompute=full")
    own, best = board["baseline"], board["leaderboard"][0]

    assert own["row"]["gpus"] == 8
    scaled = own["row"]["step_time_s"] * 8 / 16
    assert sum(own["difference_s"].values()) == pytest.approx(scaled - best["step_time_s"])


STARTED = "torchrun --nproc-per-node 8 --nnodes 2"
DIFFERS = {
    "gpus that the files do not state are those searched": (
        SCRIPT.replace(STARTED, "python"),
        "--baseline {}",
        ("taken as the 16 searched",),
    ),
    "another framework is predicted as itself": (
        SCRIPT,
        "--framework nemo --baseline {}",
        ("predicted as megatron-lm, the others as nemo",),
    ),
    "another workload": (
        SCRIPT.replace("--global-batch-size 64", "--global-batch-size 128").replace("32 ", "40 ", 1),
        "--baseline {}",
        ("global batch 128; your run is predicted with 64", "layers 40, but llama3-8b has 32"),
    ),
    "a measurement on other devices": (
        ARGUMENTS.replace("16", "32") + LOG,
        f"--baseline '{OWN}' --measured {{}}",
        ("gpus 32: not compared",),
    ),
    "a log of another strategy": (
        ARGUMENTS + LOG,
        "--baseline 'tp2 pp2 dp4 mbs1 zero1 sp' --measured {}",
        ("is of another strategy",),
    ),
}
"""What a run has that the search has not: its file, the flags, and what the notes say of it."""


@pytest.mark.parametrize("case", DIFFERS)
def test_where_a_run_differs_from_the_search_a_note_says_so(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, flags, notes = DIFFERS[case]
    path = tmp_path / ("train.sh" if text.startswith(("torchrun", "python")) else "train.log")
    path.write_text(text)
    own = asked(capsys, *shlex.split(flags.format(path)))["baseline"]

    assert all(any(note in one for one in own["notes"]) for note in notes)
    assert own["framework"] == "megatron-lm" and own["row"]["gpus"] == 16
    assert "other devices" not in case or own["measured"]["ratio"] is None


def test_a_log_alone_is_baseline_and_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.log"
    path.write_text(ARGUMENTS + LOG)
    for flag in ("--measured", "--baseline"):
        board = asked(capsys, flag, str(path))
        own = board["baseline"]
        measured, best = own["measured"], board["leaderboard"][0]

        assert own["row"]["strategy"] == OWN
        assert measured["step_time_s"] == 3.0 and measured["counted"] == 6
        assert measured["ratio"] == pytest.approx(3.0 / own["row"]["step_time_s"])
        assert measured["best_step_time_s"] == pytest.approx(measured["ratio"] * best["step_time_s"])


@pytest.mark.parametrize(
    "line",
    [
        "[titan] 2026-01-02 00:00:{at:02d},000 - root - INFO - step: {step}  loss: 9.1  memory: 30.00GiB  tps: 10",
        "completed step: {step}, seconds: 3.000, TFLOP/s/device: 400.0, loss: 9.1",
        '{{"step": {step}, "step_time_ms": 3000}}',
    ],
)
def test_logs_of_other_frameworks_are_measurements(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.log"
    path.write_text("\n".join(line.format(step=step, at=3 * step) for step in range(1, 12)))
    measured = asked(capsys, "--baseline", OWN, "--measured", str(path))["baseline"]["measured"]
    assert measured["step_time_s"] == pytest.approx(3.0)


def test_a_time_is_a_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("2.5", "2.5s", "2500ms"):
        measured = asked(capsys, "--baseline", OWN, "--measured", text)["baseline"]["measured"]
        assert measured["step_time_s"] == pytest.approx(2.5)
        assert measured["counted"] is None


def test_a_measurement_of_another_batch_is_compared_with_a_prediction_for_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.log"
    path.write_text(ARGUMENTS.replace(" 64\n", " 128\n") + LOG)
    board = asked(capsys, "--measured", str(path))
    own = board["baseline"]

    assert own["measured"]["ratio"] == pytest.approx(3.0 / (2 * own["row"]["step_time_s"]), rel=0.05)
    best = board["leaderboard"][0]
    assert own["measured"]["best_step_time_s"] == pytest.approx(own["measured"]["ratio"] * best["step_time_s"])
    assert any("was measured with global_batch 128: compared with" in note for note in own["notes"])


def test_lines_of_a_log_without_arguments_state_its_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.log"
    path.write_text(LOG.replace(" | loss", " | global batch size:   128 | loss"))
    own = asked(capsys, "--baseline", OWN, "--measured", str(path))["baseline"]
    there = simulate("llama3-8b", strategy=OWN, **{**TRAINING, "global_batch": 128})
    assert own["measured"]["ratio"] == pytest.approx(3.0 / there.step_time_s)

    words = [word for word in SEARCH if word not in ("--global-batch", "64")]
    assert main([*words, "--baseline", OWN, "--measured", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["request"]["global_batch"] == 128


def test_refined_rows_are_compared_with_a_refined_run(capsys: pytest.CaptureFixture[str]) -> None:
    from forerun.search.board.rows import rows_of
    from forerun.search.request.request import Request
    from forerun.search.request.resolve import resolve
    from forerun.search.request.setting import legal_strategy
    from forerun.simulator.events import event_scores

    own = asked(capsys, "--baseline", OWN, "--refine", "3", "--top", "3")["baseline"]
    setting = resolve(Request(model="llama3-8b", **TRAINING))  # type: ignore[arg-type]  # values of the fields' types
    row = rows_of(setting.context, [legal_strategy(setting, OWN)], score=event_scores)[0]

    assert own["row"]["step_time_s"] == row.step_time_s


WRONG = {
    "'missing.sh' is not a file": ("--baseline", "missing.sh"),
    "is not a file, and no strategy": ("--baseline", "fast please"),
    "cannot read 'warp9' in a strategy": ("--baseline", "tp2 warp9"),
    "cannot train llama3-8b": ("--baseline", "tp3 pp2 dp2 mbs1"),
    "whose step is it": ("--measured", "3.0"),
    "a time above 0": ("--baseline", OWN, "--measured", "0"),
    "is not a file, and no": ("--baseline", "\0"),
    "but got an empty text": ("--baseline", ""),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_baselines(message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SEARCH, *WRONG[message]]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("forerun:") == 1 and message.split(",")[0] in captured.err


def test_a_log_without_arguments_needs_a_strategy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.log"
    path.write_text(LOG)
    assert main([*SEARCH, "--measured", str(path)]) == 2
    assert "name its strategy with --baseline" in capsys.readouterr().err
    assert asked(capsys, "--baseline", OWN, "--measured", str(path))["baseline"]["measured"]["counted"] == 6


def test_the_table_shows_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SEARCH, "--baseline", OWN, "--measured", "2.5"]) == 0
    out = capsys.readouterr().out

    assert max(map(len, out.splitlines())) <= 80
    for text in ("you tp4 pp2 dp2", "you - best", "changes that help your run most", "Your run takes 2."):
        assert text in out


def test_the_page_shows_the_run_and_comes_back_from_a_folder(
    tmp_path: Path, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--baseline", str(script), "--measured", "2.5", "--out", str(tmp_path / "run")]
    assert main([*SEARCH, *flags, "--report", str(tmp_path / "page.html")]) == 0
    board = read_run(tmp_path / "run")
    page = report_html(board)

    assert page == (tmp_path / "page.html").read_text()
    assert board.baseline is not None and board.baseline.switches["attention"] == "flash"
    assert 'id="own-run"' in page and 'class="own-cross"' in page and "unknown setting: --frobnicate = 3" in page
    assert f"--baseline {script}" in command(board) and "--measured 2.5" in command(board)
    assert 'id="own-run"' not in report_html(dataclasses.replace(board, baseline=None))


def test_a_run_in_fp32_is_told_so_first(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(SCRIPT.replace(" --bf16", ""))

    single = asked(capsys, "--baseline", str(script))["baseline"]["text"]
    half = asked(capsys, "--baseline", OWN)["baseline"]["text"]

    assert single.startswith("Your run computes in fp32; in bf16 a step would take ")
    assert "fp32" not in half


def test_a_run_in_fp32_on_a_device_without_bf16_is_compared_with_fp16(capsys: pytest.CaptureFixture[str]) -> None:
    small = "search bert-large --cluster dgx1-v100 --gpus 8 --global-batch 64 --seq-len 512 --precision fp32 --top 1"
    assert main([*small.split(), "--set", "pp=1", "--baseline", "dp8 mbs8", "--json"]) == 0
    text = json.loads(capsys.readouterr().out)["baseline"]["text"]

    assert text.startswith("Your run computes in fp32; in fp16 a step would take ")
