"""Launch files of operator graphs: replicas in PyTorch and accelerate, and a reason for everything else."""

import ast
import json
from pathlib import Path

import pytest
import yaml

from forerun.search.cli import main

SEARCH = "search resnet50 --cluster abci-v100 --gpus 16 --global-batch 64/gpu --top 4"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search") / "run"
    assert main([*SEARCH.split(), "--out", str(folder)]) == 0
    return folder


def rank_of(searched: Path, split: str) -> str:
    rows = json.loads((searched / "leaderboard.json").read_text(encoding="utf-8"))["leaderboard"]
    return str(next(row["rank"] for row in rows if row["strategy"] == split))


def test_replicas_are_written_for_torch_and_accelerate(searched: Path, tmp_path: Path) -> None:
    out = tmp_path / "launch"
    rank = rank_of(searched, "data16")
    assert main(["export", str(searched), "--rank", rank, "--format", "all", "--out", str(out)]) == 0
    assert {folder.name for folder in out.iterdir()} == {"torch", "accelerate-fsdp"}
    facts = {
        one.targets[0].id: ast.literal_eval(one.value)  # type: ignore[attr-defined]
        for one in ast.parse((out / "torch" / "parallel.py").read_text(encoding="utf-8")).body
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant)
    }
    assert (facts["GPUS"], facts["BATCH_PER_GPU"], facts["ACCUMULATION"]) == (16, 64, 1)
    assert facts["GLOBAL_BATCH"] == 1024 and "SEQ_LEN" not in facts
    data = yaml.safe_load((out / "accelerate-fsdp" / "accelerate-fsdp.yaml").read_text(encoding="utf-8"))
    assert (data["distributed_type"], data["num_processes"], data["num_machines"]) == ("MULTI_GPU", 16, 4)
    script = (out / "accelerate-fsdp" / "launch.sh").read_text(encoding="utf-8")
    assert "--per_device_train_batch_size 64" in script and "seq_length" not in script


def test_what_replicas_cannot_do_is_refused(searched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = ["export", str(searched), "--rank", rank_of(searched, "data16 mixed"), "--out", str(tmp_path / "x")]
    assert main([*mixed, "--format", "torch"]) == 2
    assert "launch files split samples alone" in capsys.readouterr().err
    plain = ["export", str(searched), "--rank", rank_of(searched, "data16"), "--out", str(tmp_path / "x")]
    assert main([*plain, "--format", "megatron-lm"]) == 2
    assert "trains transformers, and ResNet-50 is none" in capsys.readouterr().err


def test_a_module_of_an_operator_graph_is_no_strategy(
    searched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", str(searched), "--rank", rank_of(searched, "data16"), "--format", "torch"]
    assert main([*words, "--out", str(tmp_path / "y")]) == 0
    assert main(["import", str(tmp_path / "y" / "parallel.py")]) == 2
    assert "is of an operator graph: name its split with --baseline" in capsys.readouterr().err
