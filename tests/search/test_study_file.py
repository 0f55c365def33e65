"""The file of Optuna studies: Optuna reads what forerun writes, and nothing of several writers is lost."""

import errno
import json
import multiprocessing
import os
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import SimpleNamespace

import pytest

from forerun.spaces import system

optuna = pytest.importorskip("optuna")

from forerun.search.files.studies import LAWS, MEMORY, constraints_of, finished  # noqa: E402  # with Optuna
from forerun.search.files.study_file import StudyFile  # noqa: E402  # with Optuna


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the records of two trials."""
    made = tmp_path / "study.log"
    study = optuna.create_study(storage=optuna.storages.JournalStorage(StudyFile(made)), study_name="one")
    study.add_trials([optuna.trial.create_trial(value=float(n)) for n in range(2)])
    return made


def test_optuna_reads_what_forerun_writes(path: Path) -> None:
    theirs = optuna.storages.journal.JournalFileBackend(str(path))
    study = optuna.load_study(storage=optuna.storages.JournalStorage(theirs), study_name="one")
    assert [trial.value for trial in study.trials] == [0.0, 1.0]
    for first in range(4):
        assert list(StudyFile(path).read_logs(first)) == list(theirs.read_logs(first))


def test_records_are_read_from_any_number_on(path: Path) -> None:
    file = StudyFile(path)
    every = list(file.read_logs(0))
    for first in (2, 1, 0, len(every), 1):
        assert list(file.read_logs(first)) == every[first:]
    StudyFile(path).append_logs([{"more": 1}])
    assert list(file.read_logs(len(every))) == [{"more": 1}]


def test_a_line_that_a_crash_cut_short_is_removed(path: Path) -> None:
    complete = path.read_bytes()
    path.write_bytes(complete + b'{"op_code":4,"worker')
    file = StudyFile(path)
    count = len(list(file.read_logs(0)))
    file.append_logs([{"more": 1}])
    assert path.read_bytes() == complete + b'{"more":1}\n'
    assert list(file.read_logs(count)) == [{"more": 1}]


@pytest.mark.parametrize("line", [b"not a record\n", b"[1]\n", b"[" * 5000 + b"\n"])
def test_a_line_that_is_no_record_is_named(line: bytes, path: Path) -> None:
    count = len(path.read_bytes().splitlines())
    with path.open("ab") as stream:
        stream.write(line)
    with pytest.raises(OSError, match=f"line {count + 1} is not a record of a study"):
        list(StudyFile(path).read_logs(0))


def test_a_file_that_is_removed_is_not_made_again(path: Path) -> None:
    file = StudyFile(path)
    path.unlink()
    with pytest.raises(OSError, match="removed or replaced"):
        file.append_logs([{}])
    assert not path.exists()


@pytest.mark.parametrize("call", ["write", "sync", "lock"])
def test_each_call_fails_in_turn(call: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of the file are the old ones, and the next writer adds to them."""

    def full(descriptor: int, data: bytes = b"") -> int:
        os.write(descriptor, data[:5])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before, file = path.read_bytes(), StudyFile(path)
    with monkeypatch.context() as patched:
        patched.setattr(system, call, full)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            file.append_logs([{"more": 1}])
    assert path.read_bytes() == before
    file.append_logs([{"more": 2}])
    assert path.read_bytes() == before + b'{"more":2}\n'


def _add(path: str, count: int, begin: Barrier) -> None:
    file = StudyFile(Path(path))
    begin.wait()  # else one writes while others are still imported
    for number in range(count):
        file.append_logs([{"writer": os.getpid(), "number": number, "text": "x" * 5000}] * 2)


@pytest.mark.slow  # starts processes
def test_records_of_three_writers_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    context = multiprocessing.get_context("spawn")
    begin = context.Barrier(3)
    writers = [context.Process(target=_add, args=(str(path), 50, begin)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    for writer in writers:
        assert [one["number"] for one in records if one["writer"] == writer.pid][::2] == list(range(50))


def test_constraints_are_read_from_trials_of_optuna_4_and_of_the_installed_one() -> None:
    """Optuna 4 has no field for constraints, which are user attributes among others there."""
    constraints = {MEMORY: -1.5, LAWS: 0.0}
    trial = finished(facts={"gpus": 8}, constraints=constraints, value=1.0)
    assert constraints_of(trial) == constraints
    assert constraints_of(SimpleNamespace(user_attrs={"gpus": 8, **constraints})) == constraints
    assert constraints_of(SimpleNamespace(user_attrs={"gpus": 8})) == {}
