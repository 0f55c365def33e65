"""The directory of a sweep: cut, damaged, full, foreign or shared, and nothing finished is done twice."""

import errno
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sweep_cases import RESULTS, SERIAL, Counted, fake, results

from forerun.search.sweep import ChunkTimes, RunDirectory, StorageError, SweepPlan, SweepSearch, run_sweep
from forerun.spaces import system
from forerun.spaces.errors import RequestError


def raising(chunk_times: ChunkTimes, piece: SweepSearch) -> dict[str, Any]:
    if piece.request.precision == "fp8":
        raise ZeroDivisionError("no such rule")
    return fake(chunk_times, piece)


@pytest.mark.parametrize("seed", range(5))
def test_any_cut_of_the_records_is_made_good(tmp_path: Path, plan: SweepPlan, seed: int) -> None:
    run_sweep(plan, tmp_path / "whole", workers=SERIAL, search=fake)
    run_sweep(plan, tmp_path / "cut", workers=SERIAL, search=fake)
    records = tmp_path / "cut" / "pieces.jsonl"
    content = records.read_bytes()
    left = content[: random.Random(seed).randrange(len(content))]
    records.write_bytes(left)
    for name in RESULTS:
        (tmp_path / "cut" / name).unlink()
    counted = Counted()
    found = run_sweep(plan, tmp_path / "cut", resume=True, workers=SERIAL, search=counted)

    assert results(tmp_path / "cut") == results(tmp_path / "whole")
    assert found.skipped == left.count(b"\n")
    assert len(counted.asked) == len(plan.pieces) - left.count(b"\n")


def test_a_damaged_record_in_the_middle_is_refused(tmp_path: Path, plan: SweepPlan) -> None:
    run_sweep(plan, tmp_path / "run", workers=SERIAL, search=fake)
    records = tmp_path / "run" / "pieces.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join([lines[0], lines[1][:20] + b"\n", *lines[2:]]))

    with pytest.raises(RequestError, match="line 2: not a record"):
        run_sweep(plan, tmp_path / "run", resume=True, workers=SERIAL, search=fake)


def test_what_failed_is_said_and_done_again(tmp_path: Path, plan: SweepPlan) -> None:
    folder = tmp_path / "run"
    found = run_sweep(plan, folder, workers=SERIAL, search=raising)
    failed = [search for search in found.document["searches"] if search["status"] == "failed"]
    counted = Counted()
    mended = run_sweep(plan, folder, resume=True, workers=SERIAL, search=counted)
    run_sweep(plan, tmp_path / "whole", workers=SERIAL, search=fake)

    assert found.counts == {"done": 4, "infeasible": 0, "refused": 0, "failed": 4}
    assert {search["message"] for search in failed} == {"ZeroDivisionError: no such rule"}
    assert [request.precision for request in counted.asked] == ["fp8"] * 4
    assert mended.counts["failed"] == 0
    assert results(folder) == results(tmp_path / "whole")


@pytest.mark.slow  # the sweep three times
def test_a_full_disk_is_said_and_loses_nothing(
    tmp_path: Path, plan: SweepPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real, began = tmp_path / "run", os.write, list[bool]()
    run_sweep(plan, tmp_path / "whole", workers=SERIAL)
    first, second, *_ = (tmp_path / "whole" / "pieces.jsonl").read_bytes().splitlines(keepends=True)
    left = [len(first) + len(second) // 2]

    def write(descriptor: int, data: bytes) -> int:
        if not began and not bytes(data).startswith(b'{"key"'):
            return real(descriptor, data)
        began.append(True)
        part = data[: left[0]]
        left[0] -= len(part)
        if not part:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, part)

    with monkeypatch.context() as patched:
        patched.setattr(system, "write", write)
        with pytest.raises(
            StorageError, match=r"pieces\.jsonl: No space left on device; finished searches \(\d\) are kept"
        ):
            run_sweep(plan, folder, workers=SERIAL)
    kept = (folder / "pieces.jsonl").read_bytes()
    found = run_sweep(plan, folder, resume=True, workers=SERIAL)

    assert kept.endswith(b"\n") and 0 < kept.count(b"\n") < len(plan.pieces)
    assert found.skipped == kept.count(b"\n")
    assert results(folder) == results(tmp_path / "whole")


def _other_inputs(folder: Path, plan: SweepPlan) -> SweepPlan:
    return SweepPlan(pieces=plan.pieces[:-1], objective=plan.objective)


def _other_objective(folder: Path, plan: SweepPlan) -> SweepPlan:
    return SweepPlan(pieces=plan.pieces, objective="gpus")


def _other_model_of_cost(folder: Path, plan: SweepPlan) -> SweepPlan:
    manifest = folder / "sweep.json"
    document = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**document, "cost_model": "0" * 16}))
    return plan


def _no_manifest(folder: Path, plan: SweepPlan) -> SweepPlan:
    (folder / "sweep.json").unlink()
    return plan


def _broken_manifest(folder: Path, plan: SweepPlan) -> SweepPlan:
    (folder / "sweep.json").write_text("{}")
    return plan


@pytest.mark.parametrize(
    "change,law",
    [
        (_other_inputs, r"other inputs \(8 searches there, 7 here\)"),
        (_other_objective, "other inputs"),
        (_other_model_of_cost, "another version of the cost model"),
        (_no_manifest, "is not empty and is not a sweep"),
        (_broken_manifest, "is not the manifest of a sweep"),
    ],
)
def test_another_directory_is_refused(
    tmp_path: Path, plan: SweepPlan, change: Callable[[Path, SweepPlan], SweepPlan], law: str
) -> None:
    run_sweep(plan, tmp_path / "run", workers=SERIAL, search=fake)
    plan = change(tmp_path / "run", plan)

    with pytest.raises(RequestError, match=law):
        run_sweep(plan, tmp_path / "run", resume=True, workers=SERIAL, search=fake)


def test_a_directory_is_not_overwritten_or_shared(tmp_path: Path, plan: SweepPlan) -> None:
    with RunDirectory(tmp_path / "run", plan, resume=True):
        with pytest.raises(RequestError, match=f"run is being written by process {os.getpid()} on "):
            run_sweep(plan, tmp_path / "run", resume=True, workers=SERIAL, search=fake)
    with pytest.raises(RequestError, match="--resume"):
        run_sweep(plan, tmp_path / "run", workers=SERIAL, search=fake)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"):
        run_sweep(plan, tmp_path / "file", workers=SERIAL, search=fake)


@pytest.mark.parametrize("name", ["pieces.jsonl", "parts.jsonl", ".lock"])
def test_pipes_links_and_files_of_others_are_not_taken_for_records(tmp_path: Path, plan: SweepPlan, name: str) -> None:
    folder, thesis = tmp_path / "run", tmp_path / "thesis.txt"
    with RunDirectory(folder, plan, resume=True):
        files = {path.name for path in folder.iterdir()}
    name = next(other for other in files if other == name or (name == ".lock" and "lock" in other))
    thesis.write_text("mine")
    for make in (os.mkfifo, Path.mkdir, lambda path: path.symlink_to(thesis), lambda path: path.write_text("mine")):
        path = folder / name
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)  # a lock is gone with its holder
        make(path)
        with pytest.raises(RequestError, match=re.escape(name)):
            RunDirectory(folder, plan, resume=True)
        assert thesis.read_text() == "mine"
