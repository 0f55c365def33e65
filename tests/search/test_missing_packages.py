"""Without packages that have no build for an interpreter, searches run and what needs them says so in a sentence."""

import subprocess
import sys

import pytest

from forerun.search.cli.program import NOT_EVERYWHERE

REQUEST = "llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 4096"
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing}:
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Missing())
from forerun.search.cli import main
sys.exit(max(map(main, {commands})))
"""
EVERYDAY = (
    f"search {REQUEST} --set pp=1,2 --set vpp=1 --set mbs=1",
    f"simulate {REQUEST} --strategy dp16,mbs1,zero1",
    f"explain {REQUEST} --strategy dp16,mbs1,zero1",
    "search alexnet --cluster dgx-a100-80 --gpus 8 --global-batch 512",
    "list clusters",
    "show dgx-h100",
)


def run(*commands: str, missing: tuple[str, ...] = NOT_EVERYWHERE) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(missing=missing, commands=[command.split() for command in commands])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_everyday_commands_need_none_of_them() -> None:
    done = run(*EVERYDAY)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("more", "package"),
    [("--per-stage layers --storage study.log", "optuna"), ("--goodput failures=0.01,recovery=5min", "scipy")],
)
def test_what_needs_one_names_it_in_a_sentence(more: str, package: str) -> None:
    done = run(f"search {REQUEST} {more}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"needs {package}, which is not installed; run `pip install {package}`" in done.stderr
    assert "Traceback" not in done.stderr
