"""Exported batch files under a real Slurm of two nodes: every rank of the trainer sees the world that was asked for.

``make test-slurm`` runs it. Slurm, srun and bash are real; torchrun and the trainer are stand-ins.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import fake_trainer
import pytest
import real_slurm

from forerun.search.cli import main

ASKED = "FORERUN_SLURM" in os.environ
pytestmark = pytest.mark.skipif(
    not ASKED or bool(real_slurm.missing()), reason=real_slurm.missing() if ASKED else "make test-slurm runs it"
)
SEARCH = "search llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 4096 --top 1"
TORCHRUN = """\
import os, subprocess, sys
words = sys.argv[1:]
options = {}
while words[0].startswith("--"):
    options[words[0]], words = words[1], words[2:]
ranks, node = int(options["--nproc_per_node"]), int(options["--node_rank"])
world = ranks * int(options["--nnodes"])
environment = dict(os.environ, WORLD_SIZE=str(world), MASTER_ADDR=options["--master_addr"])
started = [
    subprocess.Popen([sys.executable, *words], env={**environment, "RANK": str(node * ranks + rank)})
    for rank in range(ranks)
]
sys.exit(max(one.wait() for one in started))
"""
ONE_PROCESS = """\
import os, sys
words = sys.argv[1:]
while words[0].startswith("--"):
    words = words[2:]
if os.environ["SLURM_PROCID"] == "0":
    os.execv(sys.executable, [sys.executable, *words])
"""
TRAINER = """\
import json, os, sys
names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "SLURM_NODEID", "CUDA_DEVICE_MAX_CONNECTIONS")
seen = {name: os.environ.get(name) for name in names}
with open(os.path.join(os.environ["SEEN"], seen["RANK"]), "w") as file:
    json.dump({**seen, "cwd": os.getcwd(), "words": sys.argv[1:]}, file)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    with real_slurm.slurm(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


def submit(script: Path, folder: Path, environment: Mapping[str, str]) -> tuple[int, str, list[dict[str, object]]]:
    """Submit a batch file from ``folder``; return its exit code, its output and what every rank saw."""
    (folder / "bin").mkdir(parents=True)
    (folder / "seen").mkdir()
    (folder / "bin" / "torchrun").write_text(f"#!{sys.executable}\n{TORCHRUN}")
    (folder / "bin" / "torchrun").chmod(0o755)
    given = {
        **environment,
        "PATH": f"{folder / 'bin'}:{environment['PATH']}",
        "SEEN": str(folder / "seen"),
        "MEGATRON_PATH": str(folder / "trainer"),
        "PYTHONPATH": str(folder / "trainer"),
    }
    for program in ("pretrain_gpt.py", "torchtitan/train.py"):
        (folder / "trainer" / program).parent.mkdir(parents=True, exist_ok=True)
        (folder / "trainer" / program).write_text(TRAINER)
    done = subprocess.run(["sbatch", "--wait", str(script)], cwd=folder, env=given, capture_output=True, timeout=120)
    printed = "".join(path.read_text() for path in folder.glob("slurm-*.out"))
    seen = [json.loads(path.read_text()) for path in (folder / "seen").iterdir()]
    return done.returncode, printed, sorted(seen, key=lambda one: int(one["RANK"]))


@pytest.mark.parametrize(
    ("format_name", "asked"),
    [("megatron-lm", "--framework megatron-lm"), ("torchtitan-toml", "--framework torchtitan --set pp=1 --set tp=2")],
)
def test_every_rank_sees_the_world_that_was_exported(
    format_name: str, asked: str, cluster: Mapping[str, str], tmp_path: Path
) -> None:
    run, out = tmp_path / "run", tmp_path / "launch"
    assert main([*SEARCH.split(), *asked.split(), "--out", str(run)]) == 0
    words = ["export", str(run), "--format", format_name, "--out", str(out), "--partition", "all", "--time", "5"]
    assert main(words) == 0

    code, printed, seen = submit(out / "slurm.sbatch", tmp_path / "elsewhere", cluster)

    assert code == 0, printed
    assert [(one["RANK"], one["WORLD_SIZE"]) for one in seen] == [(str(rank), "16") for rank in range(16)]
    assert [one["SLURM_NODEID"] for one in seen] == ["0"] * 8 + ["1"] * 8
    assert {one["MASTER_ADDR"] for one in seen} == {"node0"}
    assert {one["cwd"] for one in seen} == {str(out)}
    assert all(one["words"] == seen[0]["words"] for one in seen)


def test_a_copied_folder_starts_itself_and_a_missing_one_is_named(cluster: Mapping[str, str], tmp_path: Path) -> None:
    run, out, copied = tmp_path / "run", tmp_path / "launch", tmp_path / "copied"
    assert main([*SEARCH.split(), "--out", str(run)]) == 0
    assert main(["export", str(run), "--format", "megatron-lm", "--out", str(out)]) == 0
    shutil.move(out, copied)

    code, printed, seen = submit(copied / "slurm.sbatch", tmp_path / "one", cluster)
    assert (code, {one["cwd"] for one in seen}) == (0, {str(copied)}), printed

    (copied / "launch.sh").unlink()
    code, printed, seen = submit(copied / "slurm.sbatch", tmp_path / "two", cluster)
    assert (code, seen) == (2, [])
    assert f"launch.sh is not in {out}" in printed


def test_tune_submits_short_runs_and_keeps_the_fastest(
    cluster: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = tmp_path / "code", tmp_path / "night"
    (code / "bin").mkdir(parents=True)
    shutil.copy(fake_trainer.__file__, code / "train.py")
    (code / "bin" / "torchrun").write_text(f"#!{sys.executable}\n{ONE_PROCESS}")
    (code / "bin" / "torchrun").chmod(0o755)
    (code / "behaviour.json").write_text('{"0": "crash"}')
    for name, value in {**cluster, "PATH": f"{code / 'bin'}:{cluster['PATH']}"}.items():
        monkeypatch.setenv(name, value)
    words = "tune llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 4096 --set pp=1,2 --runs 3 --yes"
    trainer = f"{code / 'train.py'} tp={{tp}} pp={{pp}} steps={{steps}}"
    assert main([*words.split(), "--launcher", "slurm", "--trainer", trainer, "--out", str(out)]) == 0

    document = json.loads((out / "result.json").read_text())
    statuses = [run["status"] for run in document["runs"]]
    assert sorted(statuses) == ["failed", "ok", "ok"]
    assert len((code / "starts.txt").read_text().splitlines()) == 3
    times = [run["step_s"] for run in document["runs"] if run["status"] == "ok"]
    assert document["best"]["step_s"] == min(times)
    capsys.readouterr()
