"""Every call that changes a file fails in turn: the old or the new file is left, never half, and a true sentence."""

import errno
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from forerun_cli import cli
from forerun_machines import write_runs
from sweep_cases import SERIAL, fake

from forerun.search.board.folder import claimed
from forerun.search.files.growing import FileLostError, GrowingFile
from forerun.search.files.journal import StorageError
from forerun.search.sweep import SweepPlan, SweepSearch, run_sweep
from forerun.search.sweep.chunks import ChunkTimes
from forerun.spaces import system
from forerun.spaces.documents import read_document
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text
from forerun.spaces.locks import held

TRAINING = "qwen3-0.6b --cluster dgx-h100 --gpus 2 --global-batch 16 --seq-len 512"
SEARCH = f"search {TRAINING} --top 1 --set pp=1 --set mbs=1 --out run"
CALLS = ("write", "sync", "rename", "lock")
PLAN = {
    "models": ["qwen3-0.6b"],
    "clusters": ["dgx-h100"],
    "workloads": [{"global_batch": 16, "seq_len": 512}],
    "budgets": [{"gpus": 1}, {"gpus": 2}],
    "axes": {"pp": [1], "mbs": [1]},
}


class Failing:
    """Counts the calls of ``system``, and lets one of them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.at: int | None = None
        self.half = False
        for name in CALLS:
            monkeypatch.setattr(system, name, self._counted(name, getattr(system, name)))

    def _counted(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object) -> object:
            self.calls.append(name)
            if self.at is None or len(self.calls) - 1 != self.at:
                return call(*arguments)
            if self.half and name == "write":
                data = arguments[1]
                assert isinstance(data, bytes | memoryview)
                os.write(int(str(arguments[0])), data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return counted


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Failing:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(PLAN))
    write_runs(tmp_path / "runs.csv", faster=0.8, count=4)
    return Failing(monkeypatch)


def whole(path: Path) -> bool:
    """Whether a file is as some run leaves it, however many lines of records it has."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return bool(json.loads(text))
    if path.suffix in (".yaml", ".yml"):
        return bool(yaml.safe_load(text))
    return text.endswith("\n") or not text


@pytest.mark.parametrize(
    "command,results",
    [
        (SEARCH, ["run/leaderboard.json", "run/leaderboard.csv", "run/request.yaml", "run/versions.json"]),
        (f"{SEARCH} --force", ["run/leaderboard.json"]),
        (f"search {TRAINING} --top 1 --set pp=1 --set mbs=1 --report page.html", ["page.html"]),
        ("sweep plan.yaml --out swept --workers serial", ["swept/leaderboard.json", "swept/pieces.jsonl"]),
        ("calibrate runs.csv --out ours.yaml", ["ours.yaml"]),
    ],
)
@pytest.mark.slow
def test_each_call_fails_in_turn(
    command: str, results: list[str], failing: Failing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = cli(capsys, command)
    assert code == 0
    count, answer = len(failing.calls), out.splitlines()[0]
    assert {"write", "sync", "rename"} <= set(failing.calls)
    old = {path: path.read_bytes() for path in map(Path, results)} if "--force" in command else {}
    # Of many writes of one kind the first and the last stand for all.
    for at in sorted({*range(min(count, 4)), *range(max(count - 4, 0), count)}):
        for folder in ("run", "swept"):
            if not old:
                shutil.rmtree(folder, ignore_errors=True)
        for name in ("page.html", "ours.yaml"):
            Path(name).unlink(missing_ok=True)
        failing.calls.clear()
        failing.at, failing.half = at, at % 2 == 1
        code, out, err = cli(capsys, command)
        failing.at = None
        told = failing.calls[at] if at < len(failing.calls) else ""
        assert code == 2 or (code == 0 and told == "write"), (at, told, err)  # a lock holds without a name, too
        assert "internal error" not in err and (code == 0 or "cannot" in err)
        if command.startswith("search") and told != "lock":
            assert out.splitlines()[0] == answer  # printed all the same
        for path in tmp_path.rglob("*"):
            assert path.is_dir() or not path.name.startswith(".") or (told == "lock" and not path.stat().st_size), path
            if path.is_file() and path not in old and not path.name.startswith("."):
                assert whole(path), path
        for path, content in old.items():
            assert path.exists() and whole(path), content


@pytest.mark.slow
def test_a_calibration_is_the_old_or_the_new(failing: Failing, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(capsys, "calibrate runs.csv --out ours.yaml")[0] == 0
    write_runs(Path("more.csv"), faster=0.8, first=4, count=2)
    before = Path("ours.yaml").read_bytes()
    failing.calls.clear()
    assert cli(capsys, "calibrate more.csv --append --out ours.yaml")[0] == 0
    last = {call: at for at, call in enumerate(failing.calls)}
    assert set(last) == set(CALLS)
    for failing.at in last.values():
        failing.calls.clear()
        Path("ours.yaml").write_bytes(before)
        assert cli(capsys, "calibrate more.csv --append --out ours.yaml")[0] == 2
        assert Path("ours.yaml").read_bytes() == before


def _append(out: str, table: str) -> int:
    from forerun.search.cli import main

    return main(["calibrate", table, "--append", "--out", out])


@pytest.mark.slow  # starts processes
def test_runs_of_several_who_append_at_once_are_all_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "ours.yaml"
    assert cli(capsys, f"calibrate {write_runs(tmp_path / 'runs.csv', faster=0.8)} --out {out}")[0] == 0
    tables = [write_runs(tmp_path / f"{n}.csv", faster=0.8, first=n, count=3) for n in (12, 15, 18)]
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        codes = pool.starmap(_append, [(str(out), str(table)) for table in tables])

    assert codes == [0, 0, 0]
    assert len(read_document(out, own=True).data["runs"]) == 12 + 3 * 3  # type: ignore[index,call-overload]  # a calibration


@pytest.mark.slow  # starts processes
def test_one_of_six_searches_into_one_folder_writes_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "forerun.search", *SEARCH.split()]
    running = [subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    errors = [process.communicate()[1] for process in running]

    assert sorted(process.returncode for process in running) == [0, 2, 2, 2, 2, 2]
    assert sum("wrote run" in text for text in errors) == 1


def test_who_holds_a_folder_is_named(failing: Failing, capsys: pytest.CaptureFixture[str]) -> None:
    with claimed(Path("run"), force=False):
        for more in ("", " --force"):
            code, _, err = cli(capsys, SEARCH + more)
            assert code == 2 and f"run is being written by process {os.getpid()}" in err
    assert not Path("run/.lock").exists()
    assert cli(capsys, SEARCH)[0] == 0


def test_a_lock_that_was_left_behind_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("process 1 on a machine that is gone")
    with held(tmp_path / ".lock", "it"):
        assert (tmp_path / ".lock").read_text().startswith(f"process {os.getpid()} on ")


def test_files_of_a_folder_behind_a_link_are_not_written_over(
    failing: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("there").mkdir()
    Path("there/leaderboard.json").write_text("mine")
    Path("run").symlink_to("there")
    code, _, err = cli(capsys, f"{SEARCH} --force")
    assert code == 2 and "symbolic link" in err
    assert Path("there/leaderboard.json").read_text() == "mine"


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_sweep_whose_folder_vanishes_says_that_its_searches_are_lost(
    how: str, tmp_path: Path, plan: SweepPlan
) -> None:
    folder, done = tmp_path / "gone", list[str]()

    def search(chunk_times: ChunkTimes, piece: SweepSearch) -> dict[str, object]:
        done.append(piece.key)
        if len(done) == 2:
            shutil.rmtree(folder)
            if how == "replaced":
                folder.mkdir()
                write_text(folder / "pieces.jsonl", "")
        return fake(chunk_times, piece)

    with pytest.raises(StorageError, match=r"removed or replaced meanwhile; finished searches \(1\) are lost"):
        run_sweep(plan, folder, workers=SERIAL, search=search)
    assert len(done) == 2


def test_a_growing_file_is_the_one_that_its_name_says(tmp_path: Path) -> None:
    file = GrowingFile(tmp_path / "lines")
    file.append(b"1\n")
    (tmp_path / "lines").rename(tmp_path / "moved")
    with pytest.raises(FileLostError):
        file.append(b"2\n")
    file.close()
    assert (tmp_path / "moved").read_bytes() == b"1\n"


def test_a_lock_on_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(RequestError, match="directory"), held(tmp_path / ".lock", "it"):
        pass
    with pytest.raises(RequestError, match="cannot write it: No such file"), held(tmp_path / "none" / ".lock", "it"):
        pass


def test_a_process_that_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(system, "start", none)
    code, _, err = cli(capsys, f"record --out {tmp_path / 'traces'} --steps 4:6 -- true")
    assert code == 2 and f"cannot run true: {os.strerror(errno.EAGAIN)}" in err
    assert not list((tmp_path / "traces").iterdir())
