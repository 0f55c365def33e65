"""One strategy of one request has one prediction, whichever verb is asked: search, simulate, explain, compare, the
baseline, a sweep, and the files of an export that are read back; with the switches that a search turns on."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from forerun.search.cli import main

REQUESTS = {
    "switches that a search turns on": "llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 1024 "
    "--set pp=1,2 --set vpp=1",
    "experts": "mixtral-8x7b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 1024 --set tp=1 --set cp=1",
    "adapters": "qwen3-0.6b --cluster dgx-a100-80 --gpus 4 --global-batch 16 --seq-len 1024 --lora 16",
    "eight bit": "qwen3-1.7b --cluster dgx-h100 --gpus 4 --global-batch 16 --seq-len 1024 --precision fp8",
    "a switch that is set": "llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 1024 --with "
    "activation-offload=on --set pp=1,2 --set vpp=1",
    "an operator graph": "resnet50 --cluster dgx1-v100 --gpus 4 --global-batch 64",
}
SLOW = ("experts", "adapters", "eight bit", "a switch that is set")


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    code = main([*words, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def figures(row: Any) -> list[Any]:
    return [row[name] for name in ("strategy", "step_time_s", "peak_memory_gib")]


def split(request: str) -> tuple[list[str], list[str]]:
    """Return the words of a request that every verb takes, and those of a search alone."""
    words, own, every = request.split(), list[str](), list[str]()
    while words:
        count = 2 if words[0].startswith("--") else 1
        (own if words[0] in ("--set", "--gpus") else every).extend(words[:count])
        words = words[count:]
    return every, own


@pytest.mark.parametrize(
    "request_text",
    [pytest.param(text, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, text in REQUESTS.items()],
)
def test_all_verbs_predict_the_same(request_text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every, own = split(request_text)
    graph = every[0] == "resnet50"
    board = asked(capsys, "search", *every, *own, "--top", "3")["leaderboard"]
    for row in board:
        more = ["--gpus", str(row["gpus"])] if graph else []
        assert figures(asked(capsys, "simulate", *every, *more, "--strategy", row["strategy"])) == figures(row)
    last = board[-1]
    given = asked(capsys, "search", *every, *own, "--top", "1", "--baseline", last["strategy"])["baseline"]["row"]
    assert figures(given) == figures(last)
    if graph:
        return
    first, second = (row["strategy"] for row in board[:2])
    assert figures(asked(capsys, "explain", *every, "--strategy", first)["row"]) == figures(board[0])
    compared = asked(capsys, "compare", *every, "--strategy", first, "--strategy", second)["rows"]
    assert [figures(row) for row in compared] == [figures(row) for row in board[:2]]


@pytest.mark.parametrize(
    "model,cluster,framework",
    [
        ("llama3-8b", "dgx-h100", "megatron-lm"),
        ("bert-base", "dgx-h100", "fsdp"),
        ("llama3-8b", "tpu-v5p-pod", "maxtext"),
    ],
)
def test_a_sweep_has_the_rows_of_its_searches(
    model: str, cluster: str, framework: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = {
        "models": [model],
        "clusters": [cluster],
        "workloads": [{"global_batch": 64, "seq_len": 512}],
        "budgets": [{"gpus": 8}],
        "axes": {"pp": [1, 2], "vpp": [1]},
        "top": 3,
    }
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(plan))
    search = f"{model} --cluster {cluster} --gpus 8 --global-batch 64 --seq-len 512 --set pp=1,2 --set vpp=1 --top 3"
    rows = asked(capsys, "search", *search.split())["leaderboard"]
    assert main(["sweep", str(path), "--out", str(tmp_path / "run"), "--workers", "serial"]) == 0
    capsys.readouterr()
    (record,) = (json.loads(line) for line in (tmp_path / "run" / "pieces.jsonl").read_text().splitlines())

    assert [figures(row) for row in record["rows"]] == [figures(row) for row in rows]
    assert json.loads((tmp_path / "run" / "leaderboard.json").read_text())["leaderboard"][0]["framework"] == framework


@pytest.mark.slow
@pytest.mark.parametrize("name", ["switches that a search turns on", "a switch that is set"])
def test_an_export_that_is_read_back_is_the_row(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = REQUESTS[name].split()
    run, files = tmp_path / "run", tmp_path / "files"
    row = asked(capsys, "search", *request, "--top", "1", "--out", str(run))["leaderboard"][0]
    assert main(["export", str(run), "--format", "megatron-lm", "--out", str(files)]) == 0
    capsys.readouterr()
    baseline = asked(capsys, "search", *request, "--top", "1", "--baseline", str(files))["baseline"]["row"]

    assert figures(baseline) == figures(row)
