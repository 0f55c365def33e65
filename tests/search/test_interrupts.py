"""A search that is stopped prints what it has found, ends with the code of its signal, and leaves no process behind."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forerun_cli import cli

from forerun.search.answer import leaderboard, searches
from forerun.search.explore.flat import sample, slicing
from forerun.search.explore.planned import planned_trees
from forerun.search.explore.samplers import driver
from forerun.search.request.interrupts import EndedEarly, Stopped, signals_as_stops
from forerun.search.tune import proposals
from forerun.search.workers.contract import ItemOutcome
from forerun.search.workers.process_tree import kept_handlers
from forerun.search.workers.processes import ProcessWorkers

SEARCH = "search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 8 --seq-len 512 --framework generic"


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Let Ctrl-C interrupt: a job in the background of a shell starts with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_best_so_far_is_printed(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = slicing.SerialWorkers.run

    def run(self: Any, *words: Any) -> Iterator[ItemOutcome]:
        for outcome in whole(self, *words):
            yield outcome
            os.kill(os.getpid(), number)

    monkeypatch.setattr(slicing.SerialWorkers, "run", run)
    found, out, err = cli(capsys, f"{SEARCH} --workers serial")
    assert found == code
    assert "tp" in out and "interrupted after" in " ".join(out.split())
    assert ("interrupted" if code == 130 else "ended by SIGTERM") in err


def test_a_search_that_is_stopped_before_its_first_slice_prints_the_best_of_its_sample(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(self: Any, *words: Any) -> Iterator[ItemOutcome]:
        raise Stopped(signal.SIGTERM)
        yield

    monkeypatch.setattr(sample, "WORTH", 1)
    monkeypatch.setattr(slicing.SerialWorkers, "run", run)
    found, out, _ = cli(capsys, f"{SEARCH} --workers serial")
    assert found == 143
    assert "tp" in out and "interrupted after 0 of" in " ".join(out.split())


@pytest.mark.slow
def test_a_sampler_that_is_stopped_keeps_what_it_knows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def stopped(self: Any) -> str:
        asked.append(1)
        if len(asked) > 2:
            raise KeyboardInterrupt
        return ""

    monkeypatch.setattr(driver._Run, "_stopped", stopped)
    code, out, _ = cli(capsys, f"{SEARCH} --per-stage layers --sampler local")
    assert code == 130 and "it was interrupted" in " ".join(out.split())


def test_signals_come_back_as_they_were() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped) as stop, signals_as_stops():
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop.value.exit_code == 143 and EndedEarly(None, stop.value).exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def _returns(common: None, item: int) -> int:
    return item


def _hangs(common: None, item: int) -> int:
    if item == 1:
        signal.pause()
    return item


@pytest.mark.slow
def test_a_worker_that_hangs_is_given_up() -> None:
    workers = ProcessWorkers(2)
    begun_s = time.monotonic()
    assert [outcome.result for outcome in workers.run(_returns, None, range(1))] == [0]
    workers.limit_s = 5 * (time.monotonic() - begun_s)  # this, too, includes the start of a process
    outcomes = {outcome.number: outcome for outcome in workers.run(_hangs, None, range(3))}
    assert [outcomes[number].result for number in (0, 2)] == [0, 2]
    assert f"gave no answer for {workers.limit_s:g} s" in str(outcomes[1].failure)


def test_a_search_that_is_stopped_in_its_sample_prints_the_best_ideas_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, calls = sample.search_slice, list[int]()

    def slices(problem: Any, low: int, high: int, **more: Any) -> Any:
        calls.append(low)
        if low == 0:
            raise KeyboardInterrupt
        return whole(problem, low, high, **more)

    monkeypatch.setattr(sample, "WORTH", 1)
    monkeypatch.setattr(sample, "WINDOW", 1 << 8)
    monkeypatch.setattr(sample, "search_slice", slices)
    found, out, _ = cli(capsys, f"{SEARCH} --workers serial")
    assert found == 130 and len(calls) > 1
    assert "dp" in out and "interrupted after 0 of" in " ".join(out.split())


@pytest.mark.parametrize(
    ("module", "name", "flags", "words"),
    [
        (leaderboard, "notes_for", "", "notes on safer rows are missing"),
        (searches, "leaderboard_of", "", "the best so far"),
        (proposals, "next_runs", "--measure-next 2", "answers of --trees, --refine and --measure-next are missing"),
        (planned_trees, "plans_of", "--per-stage devices", "unlike stages: interrupted"),
    ],
)
@pytest.mark.slow
def test_a_search_that_is_stopped_after_its_rows_were_found_prints_them(
    module: Any, name: str, flags: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = getattr(module, name)

    def stopped(*args: Any, **more: Any) -> Any:
        monkeypatch.setattr(module, name, whole)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, stopped)
    found, out, _ = cli(capsys, f"{SEARCH} --set tp=1,2 --workers serial {flags}")
    assert found == 130
    assert "dp" in out and words in " ".join(out.split())


def test_a_library_that_passes_every_signal_on_as_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Ray does while it waits: the code is that of the signal all the same."""

    def run(self: Any, *words: Any) -> Iterator[ItemOutcome]:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None
        yield

    monkeypatch.setattr(slicing.SerialWorkers, "run", run)
    code, _, err = cli(capsys, f"{SEARCH} --workers serial")
    assert code == 143 and "ended by SIGTERM" in err


def test_handlers_that_a_library_replaces_come_back() -> None:
    with signals_as_stops():
        before = signal.getsignal(signal.SIGTERM)
        with kept_handlers():
            signal.signal(signal.SIGTERM, lambda *_: None)
        assert signal.getsignal(signal.SIGTERM) is before
        with pytest.raises(Stopped) as stop, kept_handlers():
            raise SystemExit(15)
    assert stop.value.exit_code == 143


def test_who_is_stopped_while_workers_start_prints_what_there_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: Any) -> None:
        raise Stopped(signal.SIGTERM)

    monkeypatch.setattr(slicing, "PATIENCE_S", 0.0)
    monkeypatch.setattr(slicing, "WORTH_S", -1.0)
    monkeypatch.setattr(slicing, "cores", lambda: 2)
    monkeypatch.setattr(slicing, "open_workers", stopped)
    code, out, _ = cli(capsys, SEARCH)
    assert code == 143 and "interrupted after" in " ".join(out.split())


STOPPED_START = """
import sys

class Stopping:
    def find_spec(self, name, path, target=None):
        if name == "forerun.search.cli.registry":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Stopping())
from forerun.search.cli import main
sys.exit(main(["--version"]))
"""


def test_ctrl_c_while_modules_are_imported_is_one_line() -> None:
    ended = subprocess.run([sys.executable, "-c", STOPPED_START], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "forerun: interrupted\n")


STOPPED_IMPORT = """
import atexit, os, signal, sys
from forerun.search.cli import main
from forerun.search.workers import ray_tasks

def stopped(address):
    atexit.register(lambda: print("last words of a library", file=sys.stderr))
    os.kill(os.getpid(), signal.SIGHUP)

ray_tasks.load_ray = stopped
sys.exit(main(sys.argv[1:]))
"""


def test_who_is_stopped_while_ray_is_imported_hears_nothing_of_it() -> None:
    words = [sys.executable, "-c", STOPPED_IMPORT, *SEARCH.split(), "--workers", "ray"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 129
    assert ended.stderr.splitlines()[-1] == "forerun: ended by SIGHUP"


@pytest.mark.ray
@pytest.mark.slow
def test_ray_catches_no_signal_in_c() -> None:
    """A SIGTERM while it starts would end the process by a stack of C++; nothing else here catches SIGTRAP."""
    program = (
        "import signal\nfrom forerun.search.workers.ray_tasks import RayWorkers\n"
        "with RayWorkers(1):\n"
        "    line = next(line for line in open('/proc/self/status') if line.startswith('SigCgt'))\n"
        "    print(int(line.split()[1], 16) >> (signal.SIGTRAP - 1) & 1)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "0"


def test_what_a_thread_of_a_library_prints_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = slicing.SerialWorkers.run

    def run(self: Any, *words: Any) -> Iterator[ItemOutcome]:
        thread = threading.Thread(target=print, args=("(raylet) died",))
        thread.start()
        thread.join()
        yield from whole(self, *words)

    monkeypatch.setattr(slicing.SerialWorkers, "run", run)
    code, out, err = cli(capsys, f"{SEARCH} --workers serial --json")
    assert code == 0 and json.loads(out) and "(raylet) died" in err


@pytest.mark.parametrize("storage", ["study.log", pytest.param("sqlite:///study.db", marks=pytest.mark.slow)])
def test_a_storage_that_fails_midway_loses_nothing(
    storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The best so far is printed, and why it ended."""
    optuna = pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    whole, calls = optuna.study.Study.add_trial, list[int]()

    def failing(self: Any, *args: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) < 3:
            return whole(self, *args, **more)
        if storage.startswith("sqlite"):
            raise optuna.exceptions.StorageInternalError("commit") from OSError("database or disk is full")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(optuna.study.Study, "add_trial", failing)
    sampled = "--set mbs=1 --set tp=1 --per-stage layers --sampler local --evaluations 3000"
    command = f"{SEARCH} {sampled} --storage {storage}"
    code, out, err = cli(capsys, command)
    assert code == 2 and "the storage of the study fails" in err
    assert "full" in err if storage.startswith("sqlite") else "No space left" in err
    assert "dp" in out and "stopped because its storage failed" in " ".join(out.split())


def test_who_is_stopped_before_rows_are_refined_sees_no_more_than_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = slicing.SerialWorkers.run

    def run(self: Any, *words: Any) -> Iterator[ItemOutcome]:
        for outcome in whole(self, *words):
            yield outcome
            raise Stopped(signal.SIGTERM)

    monkeypatch.setattr(slicing.SerialWorkers, "run", run)
    code, out, _ = cli(capsys, f"{SEARCH} --workers serial --refine 40 --top 3 --json")
    assert code == 143 and len(json.loads(out)["leaderboard"]) == 3
