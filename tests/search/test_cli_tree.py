"""``simulate --tree``: mixtures of strategies from a file, and errors that point at the node."""

import json
from pathlib import Path

import pytest

from forerun.search.cli import main

REQUEST = ["simulate", "llama3-8b", "--cluster", "dgx-h100", "--global-batch", "64", "--seq-len", "2048"]
MIXED = """\
schedule: {microbatches: 16}
compute: {tp: 2, sp: true}
memory: {zero: 1}
children:
  - name: lower
    layers: [embedding, 0-15]
    devices: 0-7
    children:
      - {name: recomputed, layers: 0-3, schedule: {recompute: full}}
  - {name: upper, layers: [16-31, head], devices: 8-15, compute: {tp: 4}}
"""


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main([*REQUEST, *arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert isinstance(data, dict)
    return data


def test_a_mixture_has_the_usual_row_and_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(MIXED)
    flat = answer(capsys, "--strategy", "tp2 pp2 dp4 mbs1 zero1 sp", "--fidelity", "events")
    mixed = answer(capsys, "--tree", str(path))

    assert set(mixed) == {*flat, "tree"}
    assert mixed["strategy"] == "tree mixed.yaml"
    assert mixed["gpus"] == 16
    tree = mixed["tree"]
    assert isinstance(tree, dict)
    assert tree["flat"] is None
    assert [run["layers"] for run in tree["stages"][0]["runs"]] == ["embedding", "0-3", "4-15"]
    assert [run["tp"] for run in tree["stages"][1]["runs"]] == [4]
    assert [(b["between"], b["kind"]) for b in tree["borders"]] == [(["15", "16"], "point_to_point")] * 2


def test_a_written_strategy_reads_back_as_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, strategy = tmp_path / "flat.yaml", "tp2 pp4 dp2 mbs1 vpp2 zero1 sp schedule=interleaved"
    flat = answer(capsys, "--strategy", strategy, "--fidelity", "events", "--write-tree", str(path))
    tree = answer(capsys, "--tree", str(path))

    assert tree["strategy"] == strategy
    del tree["tree"]
    assert tree == flat


def test_the_timeline_is_drawn_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, trace = tmp_path / "mixed.yaml", tmp_path / "step.json"
    path.write_text(MIXED)

    assert main([*REQUEST, "--tree", str(path), "--trace", str(trace)]) == 0
    assert "stage 1  " in capsys.readouterr().out
    assert json.loads(trace.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (MIXED.replace("31", "32"), [], "mixed.yaml, line 10, children.1.layers: there is no layer 32; the model has"),
        (MIXED, ["--fidelity", "analytic"], "a tree is simulated event by event"),
        (MIXED, ["--contention"], "with contention all layers share their devices alike, but dp is 2 and 4"),
        (MIXED, ["--write-tree", "x.yaml"], "--write-tree needs a flat --strategy"),
        (MIXED, ["--gpus", "8"], "occupies 16 GPUs, but --gpus asks for 8"),
        (MIXED, ["--strategy", "dp8"], "--strategy"),
    ],
)
def test_mistakes_are_named(
    text: str, arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(text)

    assert main([*REQUEST, "--tree", str(path), *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert not captured.out


LAYERED = ["simulate", "vgg16", "--cluster", "dgx-a100-80", "--global-batch", "512"]
CLASSIFIER = """\
schedule: {microbatches: 1}
compute: {cut: {batch: 8}}
children:
  - name: classifier
    layers: ["linear*", relu14, relu15, "dropout*", loss1]
    compute: {cut: {channels: 8}}
"""


def test_models_of_operators_have_trees_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, trace = tmp_path / "mixed.yaml", tmp_path / "step.json"
    path.write_text(CLASSIFIER)

    assert main([*LAYERED, "--tree", str(path), "--trace", str(trace), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert main([*LAYERED, "--tree", str(path)]) == 0
    shown = capsys.readouterr().out

    assert data["row"]["gpus"] == 8
    assert sum(data["row"]["breakdown_s"].values()) == pytest.approx(data["row"]["step_time_s"])
    found = {(one["phase"], one["kind"]) for one in data["tree"]["communication"]}
    listed = {(one["phase"], one["kind"]) for operator in data["tree"]["operators"] for one in operator["transfers"]}
    assert listed == found and data["events"]["tasks"]["forward"] == len(data["tree"]["operators"])
    assert found == {
        ("forward", "all_gather"),
        ("again", "all_gather"),
        ("backward", "reduce_scatter"),
        ("gradient", "all_reduce"),
    }
    assert json.loads(trace.read_text())["traceEvents"]
    assert "reduce_scatter" in shown and "stage 0" in shown


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (CLASSIFIER.replace("relu14", "relu41"), [], "line 5, children.0.layers: unknown layer 'relu41'"),
        (CLASSIFIER.replace("channels: 8", "channels: 4"), [], "line 6, children.0.compute.cut: layer linear1 is cut"),
        (CLASSIFIER.replace("batch: 8", "batch: 3"), [], "line 2, compute.cut: axis batch of conv1 has 512 points"),
        (CLASSIFIER, ["--fidelity", "analytic"], "a tree is simulated event by event"),
        (CLASSIFIER, ["--gpus", "4"], "occupies 8 GPUs, but --gpus asks for 4"),
        (CLASSIFIER, ["--jitter", "0.1"], "--jitter is for transformers"),
    ],
)
def test_mistakes_about_operators_are_named(
    text: str, arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(text)

    assert main([*LAYERED, "--tree", str(path), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_tree_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REQUEST, "--tree", "/nowhere/tree.yaml"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_a_tree_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REQUEST, "--strategy", "dp8", "--write-tree", "/nowhere/tree.yaml"]) == 2
    assert "cannot write /nowhere/tree.yaml" in capsys.readouterr().err


def test_a_strategy_with_switches_is_no_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strategy = "tp1 pp2 dp4 ep4 mbs1 vpp2 schedule=interleaved with=moe-overlap"
    words = ["simulate", "mixtral-8x7b", "--cluster", "dgx-h100", "--global-batch", "32", "--seq-len", "512"]
    assert main([*words, "--strategy", strategy, "--write-tree", str(tmp_path / "tree.yaml")]) == 2
    assert "--with moe-overlap" in capsys.readouterr().err
