"""A sweep: the plan, the run directory, and that nothing finished is ever lost or done twice."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from forerun.search.cli import main
from forerun.search.request import Request
from forerun.search.sweep import RunDirectory, StorageError, SweepPlan, read_plan, run_sweep
from forerun.search.sweep import rundir as rundir_module
from forerun.search.sweep.plan import plan_of
from forerun.search.sweep.run import search_piece
from forerun.search.workers import Choice
from forerun.spaces.errors import RequestError

RESULTS = ("leaderboard.json", "leaderboard.csv", "pieces.csv")
PLAN = """\
models: [llama3-8b, llama3-70b]
clusters: [dgx-h100]
workloads: [{global_batch: 32, seq_len: 2048}, {global_batch: 32, seq_len: 2048, precision: fp8}]
budgets: [{gpus: 8}, {gpus: 16}]
axes: {mbs: 1, vpp: 1, recompute: [full]}
top: 2
"""
SERIAL = Choice(kind="serial")


@pytest.fixture
def plan(tmp_path: Path) -> SweepPlan:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return read_plan(path)


def results(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in RESULTS]


def fake(common: None, request: Request) -> dict[str, Any]:
    """A search that takes no time."""
    assert request.gpus is not None
    row = {"rank": 1, "strategy": "dp" + request.gpus, "gpus": int(request.gpus), "step_time_s": 1.0, "mfu": 0.1}
    return {"status": "done", "rows": [{**row, "tokens_per_s": 32.0 * request.seq_len, "marks": ["a", "b"]}]}


class Counted:
    """``fake``, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def __call__(self, common: None, request: Request) -> dict[str, Any]:
        self.asked.append(request)
        return fake(common, request)


def raising(common: None, request: Request) -> dict[str, Any]:
    if request.precision == "fp8":
        raise ZeroDivisionError("no such rule")
    return fake(common, request)


def test_a_plan_is_a_product_in_canonical_order(plan: SweepPlan) -> None:
    asked = [(p.request.model, p.request.precision, p.request.gpus, p.request.framework) for p in plan.pieces]

    assert asked[:3] == [
        ("llama3-8b", None, "8", "megatron-lm"),
        ("llama3-8b", None, "16", "megatron-lm"),
        ("llama3-8b", "fp8", "8", "megatron-lm"),
    ]
    assert len({piece.key for piece in plan.pieces}) == 8
    assert [piece.number for piece in plan.pieces] == list(range(8))


def test_keys_are_the_same_in_every_process(tmp_path: Path, plan: SweepPlan) -> None:
    code = "import sys; from pathlib import Path; from forerun.search.sweep import read_plan; "
    code += "print(read_plan(Path(sys.argv[1])).digest)"
    command = [sys.executable, "-c", code, str(tmp_path / "plan.yaml")]
    digests = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout.strip()
        for seed in ("1", "2")
    }

    assert digests == {plan.digest}


def test_keys_name_the_content_of_files_and_not_their_names(tmp_path: Path) -> None:
    text = (resources.files("forerun.spaces.models") / "data" / "llama3-8b.yaml").read_text()
    assert "128256" in text
    fields: dict[str, Any] = {"workloads": [{"global_batch": 8, "seq_len": 128}], "budgets": [{"gpus": "8"}]}
    document = tmp_path / "ours.yaml"
    document.write_text(text)
    before = plan_of(models=[str(document)], clusters=["dgx-h100"], **fields)
    again = plan_of(models=[str(document)], clusters=["dgx-h100"], **fields)
    document.write_text(text.replace("128256", "32000"))
    after = plan_of(models=[str(document)], clusters=["dgx-h100"], **fields)

    assert before.digest == again.digest != after.digest


@pytest.mark.parametrize(
    "change,law",
    [
        (("llama3-8b,", "llama3-8,"), "did you mean llama3-8b"),
        (("dgx-h100", "dgx-h1000"), "did you mean dgx-h100"),
        (("budgets:", "budget:"), "budgets"),
        (("gpus: 16", "gpus: 8"), "search 2 of the plan is search 1 again"),
        (("mbs: 1", "msb: 1"), "did you mean mbs"),
        (("{gpus: 16}", "{}"), "a budget names gpus"),
        (("[llama3-8b, llama3-70b]", "[]"), "models must have at least one entry"),
        (("top: 2", "objective: fastest"), "unknown objective"),
    ],
)
def test_a_wrong_plan_is_refused_before_anything_runs(tmp_path: Path, change: tuple[str, str], law: str) -> None:
    path = tmp_path / "plan.yaml"
    assert change[0] in PLAN
    path.write_text(PLAN.replace(*change))

    with pytest.raises(RequestError, match=law):
        read_plan(path)


def test_every_kind_of_workers_gives_the_same_bytes(tmp_path: Path, plan: SweepPlan) -> None:
    run_sweep(plan, tmp_path / "one", workers=SERIAL)
    found = run_sweep(plan, tmp_path / "two", workers=Choice(kind="processes", count=2))

    assert results(tmp_path / "one") == results(tmp_path / "two")
    assert found.counts["done"] > 0
    # A row of the sweep is the row of the search.
    first = next(entry for entry in found.document["leaderboard"] if entry["search"] == 1 and entry["rank"] == 1)
    alone = search_piece(None, plan.pieces[0].request)["rows"][0]
    assert {name: first[name] for name in alone} == json.loads(json.dumps(alone))


def test_the_leaderboard_ranks_across_searches(tmp_path: Path, plan: SweepPlan) -> None:
    board = run_sweep(plan, tmp_path / "run", workers=SERIAL).document["leaderboard"]

    assert [entry["place"] for entry in board] == list(range(1, len(board) + 1))
    speeds = [entry["tokens_per_s"] for entry in board]
    assert speeds == sorted(speeds, reverse=True)
    assert len({entry["model"] for entry in board}) == 2


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


def test_a_full_disk_is_said_and_loses_nothing(
    tmp_path: Path, plan: SweepPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real = tmp_path / "run", os.write
    left = [3000]

    def write(descriptor: int, data: bytes) -> int:
        part = data[: left[0]]
        left[0] -= len(part)
        if not part:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, part)

    with monkeypatch.context() as patched:
        patched.setattr(rundir_module.os, "write", write)
        with pytest.raises(
            StorageError, match=r"pieces\.jsonl: No space left on device; \d finished searches are kept"
        ):
            run_sweep(plan, folder, workers=SERIAL)
    kept = (folder / "pieces.jsonl").read_bytes()
    found = run_sweep(plan, folder, resume=True, workers=SERIAL)
    run_sweep(plan, tmp_path / "whole", workers=SERIAL)

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
        (_no_manifest, "is not empty and holds no sweep"),
        (_broken_manifest, "is not a sweep's"),
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
        with pytest.raises(RequestError, match="another sweep is running"):
            run_sweep(plan, tmp_path / "run", resume=True, workers=SERIAL, search=fake)
    with pytest.raises(RequestError, match="--resume"):
        run_sweep(plan, tmp_path / "run", workers=SERIAL, search=fake)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"):
        run_sweep(plan, tmp_path / "file", workers=SERIAL, search=fake)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["serial", "processes"])
def test_kill_at_random_points(tmp_path: Path, plan: SweepPlan, workers: str) -> None:
    run_sweep(plan, tmp_path / "whole", workers=SERIAL)
    folder, draw = tmp_path / "run", random.Random(workers)
    command = [sys.executable, "-m", "forerun.search", "sweep", str(tmp_path / "plan.yaml"), "--resume"]
    command += ["--out", str(folder), "--workers", workers]
    kills = 0
    for wanted in sorted(draw.sample(range(len(plan.pieces)), 2)):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and _records(folder) < wanted:
            time.sleep(0.005)
        time.sleep(draw.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    keys = [json.loads(line)["key"] for line in (folder / "pieces.jsonl").read_text().splitlines()]

    assert kills
    assert results(folder) == results(tmp_path / "whole")
    assert len(keys) == len(set(keys)) == len(plan.pieces)
    assert f"{len(plan.pieces)} searches" in done.stdout


def _records(folder: Path) -> int:
    path = folder / "pieces.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_the_command_line(tmp_path: Path, plan: SweepPlan, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", str(tmp_path / "plan.yaml"), "--out", str(tmp_path / "run"), "--workers", "serial"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert main([*command, "--resume", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(command) == 2

    assert "[8/8] llama3-70b on dgx-h100, search 8:" in shown.err
    assert document["leaderboard"][0]["strategy"] in " ".join(shown.out.split())
    assert document == json.loads((tmp_path / "run" / "leaderboard.json").read_text())


def test_nothing_feasible_anywhere_ends_with_its_code(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN.replace("[llama3-8b, llama3-70b]", "llama3-405b").replace("{gpus: 8}, ", ""))

    assert main(["sweep", str(path), "--out", str(tmp_path / "run"), "--workers", "serial"]) == 3
