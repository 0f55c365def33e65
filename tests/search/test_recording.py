"""``forerun record``: the processes of a training write traces of the steps that were asked for.

The training runs in processes of its own on a stand-in for PyTorch; real recordings are checked by
``benchmarks/results/2026-11-24-recorded.md``."""

import errno
import gzip
import json
import os
import sys
from pathlib import Path

import pytest

from forerun.search.cli import main
from forerun.search.recording import Recorder, command, parse_steps, record, recorder
from forerun.spaces.errors import RequestError

STAND_IN = Path(__file__).parents[1] / "support" / "stand_in_torch"
TRAIN = """
import os, sys
import torch
other, optimizer = torch.optim.Optimizer(), torch.optim.Optimizer()
for _ in range(int(sys.argv[1])):
    optimizer.step()
    other.step()  # a second optimizer, as of Muon beside Adam, is no second step
sys.exit(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
"""


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command of a training, which takes its number of steps and its exit code."""
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    monkeypatch.setenv("RANK", "3")
    script = tmp_path / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    return [sys.executable, str(script)]


def test_asked_steps_are_profiled(train: list[str], tmp_path: Path) -> None:
    recording = record([*train, "12"], tmp_path / "traces", first=5, last=9)
    kept = gzip.decompress((tmp_path / "traces" / "rank3.json.gz").read_bytes())
    assert kept == b"7 steps, 5 of them kept"  # two warm the profiler up
    assert [(rank.rank, rank.steps, rank.trace) for rank in recording.ranks] == [(3, 9, "rank3.json.gz")]
    assert recording.overhead is not None
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == ["rank3.json.gz", "recording.jsonl"]


def test_traces_outlive_a_failing_training(train: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--out", str(tmp_path / "a"), "--steps", "5:9", "--", *train, "12", "7"]) == 0
    assert "the command ended with exit code 7" in capfd.readouterr().out


def test_too_short_a_training_says_so(train: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--out", str(tmp_path / "a"), "--", *train, "12"]) == 2
    assert "after 12 optimizer steps, before step 16" in capfd.readouterr().err


def test_commands_that_train_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--out", str(tmp_path / "a"), "--json", "--", sys.executable, "-c", "print('x')"]) == 2
    output = capfd.readouterr()
    assert json.loads(output.out)["ranks"] == []  # the command's own output goes to stderr
    assert "no process of it stepped an optimizer" in output.err


def test_a_hidden_sitecustomize_still_runs(train: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os; open(os.environ['SEEN'], 'w').close()", encoding="utf-8")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STAND_IN), str(own)]))
    assert record([*train, "9"], tmp_path / "traces", first=5, last=9).ranks[0].trace
    assert (tmp_path / "seen").exists()


def test_recorder_in_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(STAND_IN))
    one = Recorder(tmp_path, first=4, last=5)
    try:
        for _ in range(8):
            one.step()
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "torch"]:
            del sys.modules[name]
    assert gzip.decompress((tmp_path / "rank0.json.gz").read_bytes()) == b"4 steps, 2 of them kept"


@pytest.mark.parametrize("name", ["export", "gzip.open", "os.replace", "open"])
def test_a_training_goes_on_where_its_trace_cannot_be_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each call that writes fails in turn, as on a full disk."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class Profiler:
        export_chrome_trace = full if name == "export" else lambda self, path: Path(path).write_bytes(b"a trace")

    one = Recorder(tmp_path, first=4, last=5)
    one._ends_s = [0.0, 1.0, 2.0, 3.0, 4.0]
    if name == "open":
        monkeypatch.setattr(recorder, "open", full, raising=False)
    elif name != "export":
        module, _, function = name.partition(".")
        monkeypatch.setattr(getattr(recorder, module), function, full)
    one._write(Profiler())
    monkeypatch.undo()

    assert "no trace of rank 0 is written" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_record_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    line = {"rank": 0, "host": "a", "steps": 9}
    (tmp_path / "recording.jsonl").write_text(json.dumps(line) + "\n" + json.dumps(line | {"rank": 1})[:-9] + "\n[]\n")
    assert [record.rank for record in command._ranks(tmp_path)] == [0]


@pytest.mark.parametrize(
    ("steps", "said"), [("3:9", "begin at 4"), ("9:5", "no earlier"), ("11", "as 11:16"), ("5:9999", "most 1000")]
)
def test_wrong_steps(steps: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        parse_steps(steps)


def test_wrong_folders_and_commands(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot run no-such-command"):
        record(["no-such-command"], tmp_path / "a", first=5, last=9)
    (tmp_path / "a" / "file").touch()
    with pytest.raises(RequestError, match="has files already"):
        record(["true"], tmp_path / "a", first=5, last=9)
