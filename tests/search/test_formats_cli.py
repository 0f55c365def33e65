"""``forerun export`` and ``forerun import`` from the command line."""

import dataclasses
import json
from pathlib import Path

import pytest

from forerun.search.cli import main
from forerun.search.formats import export, format_named, load_launch, writable
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import parse_strategy

CONFIGS = Path(__file__).with_name("public_configs")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small search."""
    folder = tmp_path_factory.mktemp("search") / "run"
    words = "search llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 4096 --top 3 --all-variants"
    restricted = "--set tp=2 --set pp=2 --set vpp=1 --set zero=1 --set sp=1 --set cp=1"
    assert main([*words.split(), *restricted.split(), "--out", str(folder)]) == 0
    return folder


def test_export_and_import_back(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "launch"
    assert main(["export", str(run), "--rank", "2", "--format", "megatron-lm", "--out", str(out), "--json"]) == 0
    exported = json.loads(capsys.readouterr().out)

    assert sorted(path.name for path in out.iterdir()) == ["launch.sh", "slurm.sbatch"]
    assert exported["rank"] == 2
    assert exported["files"] == {"megatron-lm": [str(out / "launch.sh"), str(out / "slurm.sbatch")]}

    assert main(["import", str(out), "--json"]) == 0
    imported = json.loads(capsys.readouterr().out)

    row = json.loads((run / "leaderboard.json").read_text())["leaderboard"][1]
    assert exported["launch"]["strategy"] == row["strategy"]
    degrees, _, switched = row["strategy"].partition(" with=")
    assert imported["strategy"] == degrees and switched == "tp-comm-overlap"
    assert imported["switches"]["tp-comm-overlap"] == "on"
    assert imported["unknown"] == {}
    assert imported["workload"] == {"global_batch": 64, "seq_len": 4096, "precision": "bf16", "gpus": 16}


def test_export_all_writes_each_that_can_and_says_why_not(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "all"
    assert main(["export", str(run), "--format", "all", "--out", str(out)]) == 0
    printed = capsys.readouterr()

    assert {"megatron-lm", "megatron-bridge", "forerun"} <= {path.name for path in out.iterdir()}
    assert "DeepSpeed (deepspeed) cannot express" in printed.err
    assert "nearest that it can" in printed.err
    assert not (out / "deepspeed").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--format megatron --out X", "megatron-lm"),
        ("--format deepspeed --out X", "cannot express"),
        ("--format megatron-lm --out X --rank 99", "ranks 1 to"),
        ("--format simumax --out X", "reads simumax and does not write it"),
    ],
)
def test_refusals(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    out = tmp_path / "out"
    assert main(["export", str(run), *words.replace("X", str(out)).split()]) == 2

    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_that_is_no_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "leaderboard.json").write_text('{"leaderboard": [{}], "request": 3}')
    for folder, message in ((tmp_path, "not a leaderboard"), (tmp_path / "none", "not a folder")):
        assert main(["export", str(folder), "--format", "forerun", "--out", str(tmp_path / "o")]) == 2
        assert message in capsys.readouterr().err


def test_help_names_every_format_that_is_written() -> None:
    from forerun.search.cli.registry import read_declaration

    named = set(read_declaration("export").epilog.replace(",", " ").replace(".\n", " ").split())
    assert {item.name for item in writable()} <= named


def test_options_of_slurm_need_a_script_of_it(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", str(run), "--out", str(tmp_path / "out"), "--partition", "gpu", "--format"]
    assert main([*words, "forerun"]) == 2
    assert "writes no script of Slurm" in capsys.readouterr().err
    assert main([*words, "megatron-lm"]) == 0
    assert "#SBATCH --partition=gpu" in (tmp_path / "out" / "slurm.sbatch").read_text()


def test_import_prints_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(CONFIGS / "llama3_70b.toml"), "--gpus", "64"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0] == "strategy   tp8 pp1 dp8 mbs8 zero3 sp recompute=full"
    assert lines[1] == "format     torchtitan-toml 0.2.2"
    assert any(line.startswith("assumed    global batch 64") for line in lines)
    assert "other      optimizer.lr = 0.00015" in lines


def test_a_wrong_file_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"train_batch_size": ')
    assert main(["import", str(path), "--json"]) == 2
    printed = capsys.readouterr()

    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1


@pytest.mark.slow
def test_the_laws_of_the_other_framework_hold(run: Path) -> None:
    """Megatron-LM copies key/value heads for tp=16; torchtitan would fail, though its format has the words."""
    launch, context = load_launch(run, 1)
    wide = dataclasses.replace(launch, strategy=parse_strategy("tp16 pp1 dp1 mbs1 sp"))

    assert export(wide, context, "megatron-lm").files
    assert format_named("torchtitan-toml").express(wide)
    with pytest.raises(RequestError, match="8 key/value heads are not divisible by tp=16"):
        export(wide, context, "torchtitan-toml")
    assert "torchtitan-toml" in export(wide, context, "all").refused
