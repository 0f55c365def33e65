"""A present run of an operator graph beside the best of a search."""

import json

import pytest

from forerun.search.cli import main

RESNET = "resnet50 --cluster abci-v100 --global-batch 64/gpu"


def run(text: str, capsys: pytest.CaptureFixture[str], *, words: tuple[str, ...] = ()) -> str:
    assert main([*text.split(), *words]) == 0
    return capsys.readouterr().out


def test_a_present_run_stands_beside_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    words = f"search {RESNET} --gpus 16 --json --measured 250ms"
    found = json.loads(run(words, capsys, words=("--baseline", "data4 spatial4")))
    best, own = found["leaderboard"][0], found["baseline"]
    assert (own["row"]["strategy"], own["framework"]) == ("data4 spatial4", "pytorch-ddp")
    assert sum(own["difference_s"].values()) == pytest.approx(own["row"]["step_time_s"] - best["step_time_s"])
    assert own["measured"]["ratio"] == pytest.approx(0.25 / own["row"]["step_time_s"])
    assert own["faster_rows"] == sum(row["step_time_s"] < own["row"]["step_time_s"] for row in found["leaderboard"])
    first = own["changes"][0]
    assert (first["axis"], first["change"]) == ("mode", "data4 spatial4 -> data16")
    assert first["added_s"] == pytest.approx(best["step_time_s"] - own["row"]["step_time_s"])
    assert found["request"]["baseline"] == ["data4 spatial4"]


def test_a_present_run_of_another_size_is_compared_by_sample(capsys: pytest.CaptureFixture[str]) -> None:
    """With 64 images a GPU, twice the GPUs do twice the work in a step: nothing is to be scaled."""
    found = json.loads(run(f"search {RESNET} --gpus 16 --json --baseline data8", capsys))
    best, own = found["leaderboard"][0], found["baseline"]
    apart = sum(own["difference_s"].values())
    assert apart == pytest.approx(own["row"]["step_time_s"] - best["step_time_s"])


@pytest.mark.slow
def test_mixtures_are_compared_too(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--baseline", "data8, linear*: filter8")
    text = run("search vgg16 --cluster abci-v100 --global-batch 32/gpu --gpus 8 --refine 3", capsys, words=words)
    assert "you: data8, linear*: filter8 (profile pytorch-ddp)" in text
