"""``forerun calibrate`` on runs that say something of memory: peaks, and what ran out of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from forerun_cli import cli
from forerun_machines import write_runs

from forerun.search.cli import main
from forerun.search.measured.calibrate import read_calibration, write_calibration

TRAINING = "--cluster dgx-h100 --global-batch 64 --seq-len 2048"
FULLER = 1.25
"""The device of these runs holds a quarter more than the catalogue says."""


@pytest.mark.slow  # a calibration and three searches
def test_memory_is_learned_too_and_bounds_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, out = write_runs(tmp_path / "runs.csv", fuller=FULLER), tmp_path / "ours.yaml"
    code, text, _ = cli(capsys, f"calibrate {table} --out {out}")
    assert code == 0
    assert "peak memory" in text
    assert "fits or not" in text
    error = read_calibration(out).error
    assert error["memory_before_median_pct"] == pytest.approx(100 * (1 - 1 / FULLER), abs=0.5)
    assert error["memory_left_out_median_pct"] < 6
    again = tmp_path / "again.yaml"
    write_calibration(again, read_calibration(out))
    assert again.read_text() == out.read_text()
    strategy = '--strategy "tp2 dp4 mbs1 sp zero1"'.split(maxsplit=1)
    simulate = f"simulate llama3-8b {TRAINING} --gpus 8 --json"
    rows = []
    for more in ("", f" --calibration {out}"):
        assert main([*(simulate + more).split(), strategy[0], strategy[1].strip('"')]) == 0
        rows.append(json.loads(capsys.readouterr().out))
    assert rows[0]["interval_level"] == 0.8  # of published runs
    assert rows[1]["peak_memory_gib"] == pytest.approx(FULLER * rows[0]["peak_memory_gib"], rel=0.12)
    assert rows[1]["peak_memory_low_gib"] < rows[1]["peak_memory_gib"] < rows[1]["peak_memory_high_gib"]
    assert sum(rows[1]["memory_gib"].values()) == pytest.approx(rows[1]["peak_memory_gib"])
    code, text, _ = cli(capsys, f"search llama3-8b {TRAINING} --gpus 8 --top 40 --calibration {out} --json")
    board = json.loads(text)["leaderboard"]
    unsure = [row for row in board if "may not fit" in row["marks"]]
    assert unsure
    assert all(row["fits"] and row["oom_risk"] > 0.1 for row in unsure)
    assert all(row["oom_risk"] <= 0.1 for row in board if row not in unsure)
    code, text, _ = cli(
        capsys, f"search llama3-8b {TRAINING} --gpus 8 --top 1000 --calibration {out} --oom-risk 1% --json"
    )
    bounded = json.loads(text)["leaderboard"]
    assert 0 < len(bounded) and bounded[0]["memory_limit_gib"] < board[0]["memory_limit_gib"]
    assert all(row["peak_memory_gib"] <= row["memory_limit_gib"] for row in bounded)


@pytest.mark.slow
def test_runs_that_ran_out_of_memory_are_used_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, out = write_runs(tmp_path / "runs.csv"), tmp_path / "ours.yaml"
    lines = table.read_text().splitlines()
    failed = lines[1].replace("lab-0000", "lab-oom").replace(",ok,", ",oom,").split(",")
    failed[lines[0].split(",").index("step_time_s")] = ""
    table.write_text("\n".join([*lines, ",".join(failed)]) + "\n")
    code, text, _ = cli(capsys, f"calibrate {table} --out {out} --json")
    document = json.loads(text)
    assert code == 0
    assert (document["runs"], document["error"]["memory_runs"], document["skipped"]) == (12, 13, {})
    read = read_calibration(out)
    assert len(read.runs) == 13
    assert len(read.posterior.evidence) == 12
    assert read.posterior.held is not None
    assert cli(capsys, f"calibrate --append --out {out}")[0] == 0
    assert len(read_calibration(out).runs) == 13
    only = tmp_path / "only.csv"
    only.write_text(f"{lines[0]}\n{','.join(failed)}\n")
    code, _, err = cli(capsys, f"calibrate {only} --out {tmp_path / 'none.yaml'}")
    assert code == 2
    assert "at least one run that ran" in err


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda memory: memory["evidence"]["error"].pop(), "memory.evidence.error"),
        (lambda memory: memory.update(scale=-1.0), "memory.scale"),
        (lambda memory: memory["not_determined"].append("swap"), "unknown part of memory"),
    ],
)
@pytest.mark.slow
def test_memory_that_does_not_fit_together_is_named(
    change: Callable[[dict[str, Any]], object], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ours.yaml"
    assert cli(capsys, f"calibrate {write_runs(tmp_path / 'runs.csv', fuller=FULLER)} --out {out}")[0] == 0
    document = yaml.safe_load(out.read_text())
    change(document["memory"])
    out.write_text(yaml.safe_dump(document))
    code, _, err = cli(capsys, f"search llama3-8b {TRAINING} --gpus 8 --calibration {out}")
    assert code == 2
    assert reason in err
