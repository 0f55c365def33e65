"""Measured runs of operator graphs: rows map to splits, and are judged beside those of transformers."""

import json
from pathlib import Path

import pytest
from forerun_measured import write_runs

from forerun.search.api import simulate
from forerun.search.cli import main
from forerun.search.measured.validate import load_runs, predict, summarise
from forerun.spaces.opgraph.split import parse_split

BLANK = dict.fromkeys(
    "layers hidden ffn_hidden heads kv_heads vocab seq_len gated_mlp dp tp pp micro_batch".split(), ""
)
RUN = {
    **BLANK,
    "cluster": "dgx1-v100-16",
    "device": "v100-sxm2-16",
    "gpus": "8",
    "model": "ResNet50 V1.5",
    "precision": "fp32",
    "framework": "PyTorch 1.13 DDP",
    "global_batch": "512",
    "step_time_s": "0.2",
    "group": "one",
}


def test_a_row_is_predicted_as_simulate_does(tmp_path: Path) -> None:
    other = {**RUN, "strategy": "data2 filter4 segments4", "framework": "horovod"}
    runs = load_runs([write_runs(tmp_path / "runs.csv", RUN, other, {})], graphs=True)
    assert not runs.skipped
    assert [run.strategy for run in runs.runs[:2]] == [parse_split("data8"), parse_split("data2 filter4 segments4")]
    found = predict(runs.runs)
    asked = {"cluster": "dgx1-v100-16", "global_batch": 512, "precision": "fp32"}
    for place, (split, framework) in enumerate([("data8", "pytorch-ddp"), ("data2 filter4 segments4", "horovod")]):
        row = simulate("resnet50", strategy=split, framework=framework, **asked)
        assert found.step_time_s[place] == row.step_time_s
        assert found.peak_memory_bytes[place] / 2**30 == pytest.approx(row.peak_memory_gib)
    assert found.predicted.all()
    # The transformer beside them has its interval, the others have none that could hold.
    shares = summarise(runs, found, by="model").parts
    assert shares["ResNet50 V1.5"].within_interval_pct is None and shares["ResNet50 V1.5"].rows == 2


def test_what_is_fitted_to_runs_leaves_them_out(tmp_path: Path) -> None:
    runs = load_runs([write_runs(tmp_path / "runs.csv", RUN, {})])
    assert [skipped.reason for skipped in runs.skipped] == ["not a transformer"]
    assert len(runs.runs) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"strategy": "data4"}, "gpus contradict the split"),
        ({"strategy": "tp8"}, "unknown word of a split 'tp'"),
        ({"strategy": "spatial300"}, "is not legal"),
        ({"framework": "TF1 with a parameter server"}, "parameter servers"),
        ({"precision": "bf16"}, "no bf16"),
        ({"global_batch": ""}, "global_batch"),
    ],
)
def test_rows_that_say_something_else_are_skipped_with_the_reason(
    change: dict[str, str], reason: str, tmp_path: Path
) -> None:
    (skipped,) = load_runs([write_runs(tmp_path / "runs.csv", {**RUN, **change})], graphs=True).skipped
    assert reason in skipped.reason


@pytest.mark.slow
def test_validate_takes_them_at_both_levels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_runs(tmp_path / "runs.csv", RUN, {**RUN, "strategy": "data4 spatial2"})
    figures = []
    for more in ([], ["--fidelity", "events"]):
        assert main(["validate", str(table), "--json", "--worst", "2", *more]) == 0
        figures.append(json.loads(capsys.readouterr().out))
    analytic, events = (document["overall"]["median_ape_pct"] for document in figures)
    assert analytic == pytest.approx(events, abs=3)
    assert {row["strategy"] for row in figures[0]["worst"]} == {"data8", "data4 spatial2"}
    assert main(["validate", str(table), "--worst", "2"]) == 0
    assert "backward" in capsys.readouterr().out
    assert main(["validate", str(table), "--json", "--fidelity", "events", "--contention"]) == 0
    assert json.loads(capsys.readouterr().out)["overall"]["median_ape_pct"] == pytest.approx(events, abs=3)
