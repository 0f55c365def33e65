"""A data-parallel step of an operator graph costs the same whichever verb is asked."""

import json
from dataclasses import replace
from typing import Any

import pytest

from forerun.search.api import simulate
from forerun.search.cli import main
from forerun.search.improve import model_source
from forerun.simulator.improve import rule_plan
from forerun.simulator.improve import simulate as play
from forerun.spaces.opgraph import load_graph_model
from forerun.spaces.opgraph.profile import load_graph_profile

BATCH = 16
CASES = [
    pytest.param("resnet50", "abci-v100", "pytorch-ddp", 64, marks=pytest.mark.slow),
    ("resnet50", "dgx-a100-80", "horovod", 16),
    ("vgg16", "abci-v100", "chainermn", 32),
    ("vgg16", "dgx1-v100", "horovod", 4),
    pytest.param("inception-v3", "titan-rtx-box", "pytorch-ddp", 8, marks=pytest.mark.slow),
    ("dlrm-516m", "dgx1-v100", "pytorch-ddp", 16),
    ("dlrm-516m", "abci-v100", "ideal", 8),
    ("alexnet", "aws-p3dn", "pytorch-ddp", 16),
]


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Run the command line and return the document that it prints."""
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(("model", "cluster", "framework", "gpus"), CASES)
@pytest.mark.slow
def test_every_verb_says_the_same(
    model: str, cluster: str, framework: str, gpus: int, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--cluster", cluster, "--framework", framework]
    batch = ["--global-batch", f"{BATCH}/gpu"]
    split = [model, *where, *batch, "--strategy", f"data{gpus}"]
    simulated = answer(capsys, "simulate", *split)["row"]
    step_s = simulated["step_time_s"]

    board = answer(capsys, "search", model, *where, *batch, "--gpus", str(gpus), "--set", "mode=data", "--top", "20")
    searched = next(row for row in board["leaderboard"] if row["strategy"] == f"data{gpus}")
    curves = answer(capsys, "limits", model, *where, *batch, "--gpus", f"1..{gpus}", "--set", "mode=data")["limits"]
    limited = next(point for family in curves for point in family["curve"] if point["strategy"] == f"data{gpus}")
    scaled = answer(capsys, "scale", model, *where, "--batch", str(BATCH), "--workers", str(gpus))["points"][-1]
    said = {
        "search": searched["step_time_s"],
        "limits": limited["step_time_s"],
        "explain": answer(capsys, "explain", *split)["row"]["step_time_s"],
        "events": answer(capsys, "simulate", *split, "--fidelity", "events")["row"]["step_time_s"],
        "scale": scaled["step_time_s"],
        "improve": improved_s(model, cluster, framework, gpus),
        "a mixture of one": mixed_s(model, cluster, framework, gpus),
    }
    assert said == pytest.approx(dict.fromkeys(said, step_s), rel=1e-9)
    assert scaled["samples_per_s"] == pytest.approx(simulated["samples_per_s"], rel=1e-9)


def improved_s(model: str, cluster: str, framework: str, gpus: int) -> float:
    """Return what ``improve`` starts from."""
    source = model_source(model, cluster=cluster, gpus=gpus, batch=BATCH, framework=framework)
    return play(source.step, source.plan or rule_plan(source.step, source.rule)).step_s


def mixed_s(model: str, cluster: str, framework: str, gpus: int) -> float:
    """Return the step of a mixture whose layers are all split alike."""
    mixture = f"data{gpus}, *: data{gpus}"
    asked = {"cluster": cluster, "global_batch": gpus * BATCH, "framework": framework}
    return simulate(model, strategy=mixture, **asked).step_time_s


@pytest.mark.parametrize("workers", [1, 8, 16])
def test_both_models_of_scale_say_the_same_without_jitter(workers: int, capsys: pytest.CaptureFixture[str]) -> None:
    for model in ("vgg16", "dlrm-516m"):
        words = [model, "--cluster", "dgx1-v100", "--workers", str(workers), "--jitter", "0"]
        (point,) = answer(capsys, "scale", *words)["points"]
        assert abs(point["disagreement"]) < 1e-9


def test_what_a_step_takes_besides_its_bytes_is_the_frameworks() -> None:
    steps = {
        name: model_source("resnet50", cluster="abci-v100", gpus=16, batch=BATCH, framework=name).step
        for name in ("ideal", "pytorch-ddp", "horovod")
    }
    assert steps["ideal"].host_s == steps["ideal"].message_s == 0
    coordinator_s = load_graph_profile("horovod").rendezvous_s - load_graph_profile("pytorch-ddp").rendezvous_s
    assert steps["horovod"].host_s - steps["pytorch-ddp"].host_s == pytest.approx(coordinator_s)
    assert steps["pytorch-ddp"].message_s > 0


def test_tables_exchange_the_rows_of_all_replicas() -> None:
    step = model_source("dlrm-516m", cluster="dgx1-v100", gpus=16, batch=BATCH).step
    model = load_graph_model("dlrm-516m")
    tables = {table.name: table for table in model.tables}
    for op in step.ops:
        if op.name in tables:
            rows = 16 * BATCH * tables[op.name].lookups * tables[op.name].output[-1]
            assert op.gradient_bytes == 4 * min(rows, tables[op.name].parameters)


@pytest.mark.slow
def test_loading_is_waited_for_whoever_asks(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    slow = replace(load_graph_profile("pytorch-ddp"), storage_bytes_per_s=5e6)
    for module in ("forerun.search.request.graphs", "forerun.search.scale.request"):
        monkeypatch.setattr(f"{module}.load_graph_profile", lambda name: slow)
    split = ["resnet50", "--cluster", "dgx1-v100", "--global-batch", "16/gpu", "--strategy", "data16"]
    row = answer(capsys, "simulate", *split)["row"]
    assert row["breakdown_s"]["input"] > 0
    events = answer(capsys, "simulate", *split, "--fidelity", "events")["row"]
    scaled = answer(capsys, "scale", "resnet50", "--cluster", "dgx1-v100", "--batch", "16", "--workers", "16")
    for found in (events, scaled["points"][-1], {"step_time_s": improved_s("resnet50", "dgx1-v100", "x", 16)}):
        assert found["step_time_s"] == pytest.approx(row["step_time_s"], rel=1e-9)


@pytest.mark.parametrize(
    "words",
    [
        "bert-large --cluster aws-p3dn --precision fp16 --seq-len 384 --framework megatron-lm",
        "llama3-8b --cluster dgx-h100 --seq-len 2048 --framework torchtitan",
    ],
)
@pytest.mark.slow
def test_scale_of_a_transformer_is_what_simulate_says(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    gpus, batch = 8, 2
    strategy = ["--global-batch", str(gpus * batch), "--strategy", f"dp{gpus} mbs{batch}"]
    step_s = answer(capsys, "simulate", *words.split(), *strategy)["step_time_s"]
    scaled = answer(capsys, "scale", *words.split(), "--batch", str(batch), "--workers", f"1,{gpus}")
    assert scaled["points"][-1]["step_time_s"] == pytest.approx(step_s, rel=1e-9)
    assert scaled["points"][0]["step_time_s"] == pytest.approx(scaled["one_worker"]["step_time_s"], rel=1e-9)
    # With jitter the steps of workers differ, which the core knows nothing of.
    uneven = answer(capsys, "scale", *words.split(), "--batch", str(batch), "--workers", str(gpus), "--jitter", "0.1")
    assert uneven["points"][-1]["breakdown_s"]["straggler wait"] > 0
