"""``search --measure-next``: runs that would help, as launch files, and the table through which results come back."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from forerun.search.cli import main
from forerun.search.measured.calibrate import calibrate_files
from forerun.search.measured.validate import load_runs, predict
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve

SEARCH = "search llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 4096 --top 3 --workers serial"


def proposed(out: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict:  # type: ignore[type-arg]
    assert main([*SEARCH.split(), "--measure-next", "3", "--out", str(out), "--json", *more]) == 0
    document: dict = json.loads(capsys.readouterr().out)  # type: ignore[type-arg]
    return document


@pytest.mark.slow
def test_results_come_back_as_what_was_searched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = proposed(tmp_path / "run", capsys)
    assert len(document["leaderboard"]) == 3
    assert [run["strategy"] for run in document["measure_next"]["runs"]]
    table = tmp_path / "run" / "measure" / "runs.csv"
    lines = list(csv.DictReader(table.read_text().splitlines()))
    for line in lines:
        line["step_time_s"] = "4.5"
    with table.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    runs = load_runs([table])
    assert not runs.skipped
    asked = resolve(Request(model="llama3-8b", cluster="dgx-h100", gpus="16", global_batch=64, seq_len=4096)).context
    for run, wanted in zip(runs.runs, document["measure_next"]["runs"], strict=True):
        assert str(run.strategy) == wanted["strategy"]
        assert run.context == asked
    assert np.isfinite(predict(runs.runs).step_time_s).all()
    found = calibrate_files([table])
    assert len(found.runs) == 3


@pytest.mark.slow
def test_what_was_measured_is_not_proposed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = ("--without", "tp-comm-overlap")
    first = proposed(tmp_path / "run", capsys, *plain)
    names = [run["strategy"] for run in first["measure_next"]["runs"]]
    table = tmp_path / "run" / "measure" / "runs.csv"
    table.write_text(table.read_text().replace(",64,,ok,", ",64,4.4,ok,"))
    ours = tmp_path / "ours.yaml"
    assert main(["calibrate", str(table), "--out", str(ours)]) == 0
    capsys.readouterr()
    second = proposed(tmp_path / "again", capsys, "--calibration", str(ours), *plain)
    again = [run["strategy"] for run in second["measure_next"]["runs"]]
    assert not set(again) & set(names)
    assert second["measure_next"]["measured_among_candidates"] == 3


@pytest.mark.slow
def test_what_ran_out_of_memory_is_not_proposed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = ("--without", "tp-comm-overlap")
    first = proposed(tmp_path / "run", capsys, *plain)
    names = [run["strategy"] for run in first["measure_next"]["runs"]]
    table = tmp_path / "run" / "measure" / "runs.csv"
    head, failed, *others = table.read_text().splitlines()
    measured = [line.replace(",64,,ok,", ",64,4.4,ok,") for line in others]
    table.write_text("\n".join([head, failed.replace(",64,,ok,", ",64,,oom,"), *measured]) + "\n")
    ours = tmp_path / "ours.yaml"
    assert main(["calibrate", str(table), "--out", str(ours)]) == 0
    capsys.readouterr()
    second = proposed(tmp_path / "again", capsys, "--calibration", str(ours))
    assert not {run["strategy"] for run in second["measure_next"]["runs"]} & set(names)


@pytest.mark.slow
def test_launch_files_are_of_the_framework_or_as_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proposed(tmp_path / "own", capsys)
    folders = sorted(path.name for path in (tmp_path / "own" / "measure").iterdir() if path.is_dir())
    assert [name[:3] for name in folders] == ["01-", "02-", "03-"]
    assert all(list((tmp_path / "own" / "measure" / name).iterdir()) for name in folders)
    proposed(tmp_path / "forerun", capsys, "--format", "forerun")
    folders = sorted(path.name for path in (tmp_path / "forerun" / "measure").iterdir() if path.is_dir())
    assert folders == ["01-forerun", "02-forerun", "03-forerun"]


@pytest.mark.slow
def test_tables_name_the_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SEARCH.split(), "--measure-next", "2"]) == 0
    out = capsys.readouterr().out
    assert "runs to measure to choose the best" in " ".join(out.split())
    assert "less regret" in out


ROW = {
    "device": "h100-sxm",
    "gpus": "16",
    "model": "llama3-8b",
    "cluster": "dgx-h100",
    "strategy": "tp2 dp8 mbs1 zero1 sp",
    "seq_len": "4096",
    "precision": "bf16",
    "framework": "profile:megatron-lm",
    "global_batch": "64",
    "step_time_s": "4.5",
    "outcome": "ok",
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"strategy": "tp2 dp4 mbs1"}, "gpus contradicts the strategy"),
        ({"tp": "4"}, "tp contradicts the strategy"),
        ({"strategy": "tp2 dp8 fast"}, "no strategy"),
        ({"cluster": "dgx-h1000"}, "unknown cluster dgx-h1000"),
        ({"cluster": "dgx-a100-80"}, "device contradicts cluster dgx-a100-80"),
        ({"model": "llama9"}, "missing shape: layers"),
        ({"framework": "profile:megatron"}, None),
    ],
)
def test_rows_that_name_things_are_checked(change: dict[str, str], reason: str | None, tmp_path: Path) -> None:
    from forerun.search.measured.validate.columns import OPTIONAL, REQUIRED

    path = tmp_path / "runs.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=(*REQUIRED, *OPTIONAL), restval="")
        writer.writeheader()
        writer.writerow({"run_id": "good-1", **ROW})
        writer.writerow({"run_id": "bad-1", **ROW, **change})
    runs = load_runs([path])
    assert runs.runs[0].run_id == "good-1"
    if reason is None:
        assert "framework" in runs.runs[1].filled
    else:
        assert runs.skipped[0].reason.startswith(reason)
