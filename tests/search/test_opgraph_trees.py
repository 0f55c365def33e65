"""Mixtures near the best splits of a board: better than their starts, and what the tree of the file is."""

import json
from pathlib import Path

import pytest

from forerun.search.cli import main

ALEXNET = "alexnet --cluster abci-v100 --global-batch 8/gpu"


@pytest.mark.slow
def test_weights_that_cost_most_to_exchange_are_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"search {ALEXNET} --gpus 8 --top 3 --refine 3 --trees 1 --set mode=data --json --out {tmp_path / 'run'}"
    assert main(words.split()) == 0
    found = json.loads(capsys.readouterr().out)["trees"]
    assert found["starts"] == 1 and found["judged"] > 10 and found["simulated"] == 1
    (row,) = found["rows"]
    assert row["start"] == "data8" and row["gain"] > 0.1
    assert any(change.startswith("linear1") for change in row["changes"])
    file = tmp_path / "run" / "trees" / "1.yaml"
    assert file.read_text(encoding="utf-8") == row["tree"]

    assert main(["simulate", *ALEXNET.split(), "--tree", str(file), "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["step_time_s"] == pytest.approx(row["step_time_s"])


def test_objectives_that_a_shorter_step_does_not_serve_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(f"search {ALEXNET} --gpus 8 --trees --objective headroom".split()) == 2
    assert "drop --trees" in capsys.readouterr().err
