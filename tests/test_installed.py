"""What only an installed package can get wrong: files that were left behind, an entry of the catalogue that no longer
reads, a verb that misses something. ``make wheel`` runs this on the built wheel."""

import shlex
import shutil
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest
from forerun_cli import cli
from forerun_machines import write_runs

import forerun.search
import forerun.simulator
import forerun.spaces
from forerun.search.catalogue.lists import LISTS
from forerun.search.cli import main
from forerun.search.cli.registry import VERBS

ROOT = Path(__file__).parents[1]
TRAINING = "llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 4096"
STRATEGY = '--strategy "tp2 pp2 dp4 mbs1 zero1 sp"'
EXAMPLES = f"""
search {TRAINING} --gpus 16 --out run
export run --rank 1 --format megatron-lm --out launch
import launch/launch.sh --gpus 16
report run
simulate {TRAINING} {STRATEGY} --fidelity events --trace step.json.gz
simulate resnet50 --cluster abci-v100 --global-batch 64/gpu --strategy data16
explain {TRAINING} {STRATEGY}
compare {TRAINING} {STRATEGY} --strategy "tp4 dp4 mbs1 zero1 sp"
scale resnet50 --cluster dgx1-v100 --precision fp32 --batch 64 --workers 1,8
limits vgg16 --cluster dgx-a100-80 --gpus 1..8 --global-batch 64/gpu --report limits.html
sweep plan.yaml --out sweep
improve resnet50 --cluster aws-p3dn --gpus 16 --batch 32 --no-fuse
record --out recorded --steps 4:5 -- {shlex.quote(sys.executable)} train.py
replay traces/dp-transformer
rollout {TRAINING} --gpus 16 --rollout-rate 3000 --response 2000
validate runs.csv
calibrate runs.csv --out ours.yaml
profile {TRAINING} --gpus 16 --only collectives --nccl-tests all_reduce_perf.txt --out links.yaml
list models
show llama3-8b
completion bash
doctor
mcp --help
tune --help
job jobs.yaml
"""
TRAIN = "import torch\noptimizer = torch.optim.Optimizer()\nfor _ in range(6):\n    optimizer.step()\n"
PLAN = """
models: [llama3-8b]
clusters: [dgx-h100]
workloads: [{global_batch: 64, seq_len: 4096}]
budgets: [{gpus: 8}]
"""
ALL_REDUCE = """\
# Using devices
#  Rank  0 Group  0 Pid  1 on node-0 device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  2 on node-0 device  1 [0x43] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
    33554432       8388608     float     sum      -1    198.8  168.80  168.80      0    198.5  169.04  169.04      0
"""


def test_every_file_of_the_packages_is_installed() -> None:
    missing = []
    for package in (forerun.search, forerun.simulator, forerun.spaces):
        (installed,) = package.__path__
        top = ROOT / package.__name__.removeprefix("forerun.")
        for path in top.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                if not (Path(installed) / path.relative_to(top)).is_file():
                    missing.append(str(path.relative_to(ROOT)))

    assert not missing, f"not in the installed package: {', '.join(missing)}"


def test_the_command_is_installed() -> None:
    command = shutil.which("forerun", path=Path(sys.executable).parent)
    assert command is not None
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)

    assert metadata("forerun")["Version"] in done.stdout


@pytest.mark.parametrize("kind", LISTS)
def test_every_entry_of_the_catalogue_reads(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = [next(iter(entry.values())) for entry in LISTS[kind]()]
    wrong = [name for name in names if cli(capsys, "show", name)[0]]

    assert len(names) > 3
    assert not wrong, f"forerun show fails for {', '.join(wrong)}"


@pytest.mark.slow  # all verbs
def test_every_verb_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "tests" / "simulator" / "traces", tmp_path / "traces")
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "jobs.yaml").write_text("jobs: [{verb: show, arguments: [dgx1-v100]}]")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "support" / "stand_in_torch"))
    (tmp_path / "all_reduce_perf.txt").write_text(ALL_REDUCE)
    write_runs(tmp_path / "runs.csv", faster=0.9)
    commands = [shlex.split(line) for line in EXAMPLES.strip().splitlines()]
    wrong = []
    for words in commands:
        code = main(words)
        out, err = capsys.readouterr()
        if code or not (out or err):
            wrong.append(f"{shlex.join(words)}: exit code {code}: {err}")

    assert {words[0] for words in commands} == {verb.name for verb in VERBS}
    assert not wrong, "\n".join(wrong)
